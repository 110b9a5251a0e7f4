"""Dataflow and Cloud Storage in one server.

It takes a submission as the services do, and runs nothing.

A job's states, messages and counters are what a test says they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from apache_beam.portability.api import beam_runner_api_pb2

from tests.fake_gcs import Answer, FakeGcs, Request, Server, main, refusal

JOBS = "/v1b3/projects/"
JOB_ID = "2026-01-01_00_00_00-1234567890"


class DataflowServer(Server):
    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[dict[str, Any]] = []
        self.refuses = 0
        self.state = "JOB_STATE_RUNNING"
        self.messages: list[dict[str, str]] = []
        self.metrics: list[dict[str, Any]] = []

    def _note(self, request: Request) -> str:
        return "" if request.path.startswith(JOBS) else super()._note(request)

    def _handle(self, request: Request, fault: str) -> Answer:
        match = re.fullmatch(
            rf"{JOBS}([^/]+)/locations/([^/]+)/jobs(?:/([^/]+))?(/messages|/metrics)?", request.path
        )
        if match is None:
            return super()._handle(request, fault)
        project, region, job_id, part = match.groups()
        self.log.append(
            {"method": request.method, "name": request.path, "body": request.body.decode()}
        )
        if part:
            return self._json(
                {"jobMessages": self.messages} if part == "/messages" else {"metrics": self.metrics}
            )
        if request.method == "POST":
            if self.refuses:
                return refusal(self.refuses)
            self.jobs.append(json.loads(request.body))
        elif request.method == "PUT":
            self.state = "JOB_STATE_CANCELLED"
        if not self.jobs or (job_id or JOB_ID) != JOB_ID:
            return refusal(404)
        job = self.jobs[-1]
        about = {"id": JOB_ID, "name": job["name"], "projectId": project, "location": region}
        state = "JOB_STATE_PENDING" if request.method == "POST" else self.state
        return self._json(
            {**about, "clientRequestId": job["clientRequestId"], "currentState": state}
        )

    def _json(self, body: Any) -> Answer:
        return Answer(200, body, Content_Type="application/json")

    def control(self, request: Request) -> Answer:
        if request.path.endswith("/jobs"):
            return Answer(200, self.jobs)
        if request.path.endswith("/service"):
            settings = json.loads(request.body)
            self.refuses = settings.get("refuses", 0)
            self.state = settings.get("state", "JOB_STATE_RUNNING")
            self.messages, self.metrics = settings.get("messages", []), settings.get("metrics", [])
            return Answer(200)
        return super().control(request)


class FakeDataflow(FakeGcs):
    """Starts the server in a process of its own, and talks to it."""

    module = "tests.fake_dataflow"

    @property
    def flags(self) -> list[str]:
        """What leads a submission here."""
        endpoint = self.address.replace("127.0.0.1", "localhost")
        flags = [
            "--runner=DataflowRunner",
            "--project=my-project",
            "--region=europe-west4",
            "--no_auth",
        ]
        return [*flags, f"--dataflow_endpoint={endpoint}", "--temp_location=gs://b/tmp"]

    def jobs(self) -> list[dict[str, Any]]:
        """As they were created."""
        return list(json.loads(self._ask("jobs")))

    def set_service(self, **settings: Any) -> None:
        """Sets the job's `state`, `messages` and `metrics`, and how new ones are refused.

        What is not given is as at first.
        """
        self._ask("service", json.dumps(settings).encode())

    def metrics(self, counters: Mapping[str, Mapping[str, int]]) -> list[dict[str, Any]]:
        """Counters (step -> name -> value) as the service tells them.

        A distribution and one of the service's own are beside them.

        Each comes twice: with what is not committed yet, and without.
        """
        transforms = self.pipeline().components.transforms
        ids = {transform.unique_name: name for name, transform in transforms.items()}
        found: list[dict[str, Any]] = []
        for tentative in ({"tentative": "true"}, {}):
            for step, values in counters.items():
                context = {"namespace": "beam_tfr", "step": ids[step], **tentative}
                for name, value in values.items():
                    scalar = value if tentative else 0
                    found.append(
                        {
                            "name": {"origin": "user", "name": name, "context": context},
                            "scalar": scalar,
                        }
                    )
                sizes = {"count": 2, "min": 3, "max": 5, "mean": 4, "sum": 8}
                named = {"origin": "user", "name": "read-bytes", "context": context}
                found.append({"name": named, "distribution": sizes})
            elements = {
                "original_name": "Read-out0-ElementCount",
                "output_user_name": "Read-out0",
                **tentative,
            }
            service = {"origin": "dataflow/v1b3", "name": "ElementCount", "context": elements}
            found.append({"name": service, "scalar": 42})
        return found

    def pipeline(self) -> beam_runner_api_pb2.Pipeline:
        """That of the newest job, as it was staged."""
        url = self.jobs()[-1]["environment"]["sdkPipelineOptions"]["options"]["pipelineUrl"]
        return beam_runner_api_pb2.Pipeline.FromString(self.get(url.removeprefix("gs://b/")))


if __name__ == "__main__":
    main(DataflowServer())
