"""Buckets with settings that companies use.

What works in them, and what is said where it cannot.
"""

from __future__ import annotations

import pytest

from beam_tfr.verification import verify
from tests.fake_gcs import FakeGcs
from tests.gcs_fixtures import Command, convert

KEPT = "and cannot be deleted, overwritten or archived until"
RETENTION = (
    f"Object '{{}}' is subject to bucket's retention policy {KEPT} 2031-09-20T12:18:15-07:00"
)
HOLD = f"Object '{{}}' is under active Event-Based hold {KEPT} hold is removed."


@pytest.mark.parametrize("kept", [RETENTION, HOLD], ids=["retention", "hold"])
def test_a_bucket_that_keeps_objects_is_refused_before_an_image_is_read(
    bucket: FakeGcs, beam_tfr: Command, kept: str
) -> None:
    bucket.set(kept=kept)
    run = convert(beam_tfr)
    assert run.code == 2
    assert (
        "write to a bucket without retention policies and holds, and copy the dataset from there"
        in run.err
    )
    assert "storage.objects" not in run.err
    assert not any(request["name"].endswith(".jpg") for request in bucket.take_log())


@pytest.mark.parametrize(
    ("said", "cure"),
    [
        (
            "Permission denied on Cloud KMS key. Please ensure that your Cloud Storage service "
            "account has been "
            "authorized to use this key.",
            "needs the role Cloud KMS CryptoKey Encrypter/Decrypter on the bucket's key",
        ),
        (
            "Request is prohibited by organization's policy. vpcServiceControlsUniqueIdentifier: x",
            "service perimeter",
        ),
        (
            "a@x does not have serviceusage.services.use access to the Google Cloud project.",
            "--gcs_project names",
        ),
    ],
)
def test_a_refusal_that_is_no_missing_permission_on_objects(
    bucket: FakeGcs, beam_tfr: Command, said: str, cure: str
) -> None:
    bucket.set(denied=["POST"], said=said)
    run = convert(beam_tfr)
    assert run.code == 2
    assert said in run.err
    assert cure in run.err
    assert "needs storage.objects" not in run.err


def test_requester_pays(bucket: FakeGcs, beam_tfr: Command) -> None:
    bucket.set(requester_pays=True)
    run = convert(beam_tfr)
    assert run.code == 2
    assert "requester pays" in run.err
    assert "--gcs_project names the project that pays" in run.err
    bucket.take_log()
    assert convert(beam_tfr, "--gcs_project=payer").json["written"] == 8
    asked = [
        request for request in bucket.take_log() if request["method"] != "PUT"
    ]  # an upload that was accepted
    assert {request.get("userProject") for request in asked} == {"payer"}


def test_a_run_deletes_and_replaces_only_small_files_of_its_own_and_sets_no_acl(
    bucket: FakeGcs, beam_tfr: Command
) -> None:
    """So versions and soft-deleted objects are few; uniform access is enough."""
    assert convert(beam_tfr).json["written"] == 8
    log = bucket.take_log()
    assert not any(
        "acl" in key.lower() or value == "full" for request in log for key, value in request.items()
    )
    deleted = [request["name"] for request in log if request["method"] == "DELETE"]
    assert all(name.startswith("out/.beam_tfr/") for name in deleted)
    # For two shards: a sidecar and at most two marks each; once: lock, plan, notes, switch, what is
    # tried at the start.
    assert len(deleted) <= 3 * 2 + 5, deleted
    made = [request["name"] for request in log if request["method"] == "POST"]
    assert len(made) == len(set(made)), sorted(made)
    assert verify("gs://b/out").ok
