"""Groups options for `--help-all`, docs/options.md and the Flex Template's form."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """Options that people look for together.

    Attributes:
        title: heading of the group.
        when: a sentence that says when users need the options.
    """

    title: str
    when: str


WHAT = Group(
    title="input and output",
    when="Use these to choose the images to convert and the folder for the dataset.",
)
CLASSES = Group(
    title="classes and splits",
    when="Use these when folders do not name the classes, or you need more splits than train.",
)
TABLES = Group(
    title="tables",
    when="Use these when a table, rather than folders, lists the images and their labels.",
)
BOXES = Group(
    title="boxes",
    when="Use these when some boxes are wrong, or resizing cuts them off.",
)
LOOK = Group(
    title="images",
    when="Use these when training needs anything but JPEGs of 224x224.",
)
LIMITS = Group(
    title="limits",
    when="Use these when good images are rejected as too large, or to reject tiny and narrow ones.",
)
FILES = Group(
    title="shards",
    when="Use these when readers need a certain number or size of files. Set the number or "
    "the size, not both.",
)
CARD = Group(
    title="dataset card",
    when="Use these before you publish a dataset. Its README.md and croissant.json contain "
    "the values.",
)
REJECTS = Group(
    title="rejects",
    when="Use these when a run fails because too many files are rejected or cannot be read.",
)
RUN = Group(
    title="the run",
    when="Use these when the output folder holds another dataset, or storage is far away.",
)
PROGRESS = Group(
    title="progress and result",
    when="Use these in scripts. Progress goes to stderr, the result to stdout.",
)
DATAFLOW = Group(
    title="Dataflow",
    when="Use these with --runner=DataflowRunner.",
)
# The groups whose options do not affect the records of a dataset.
NOT_ABOUT_RECORDS = (FILES, CARD, REJECTS, RUN, PROGRESS, DATAFLOW)
GROUPS = (
    WHAT,
    CLASSES,
    TABLES,
    BOXES,
    LOOK,
    LIMITS,
    FILES,
    CARD,
    REJECTS,
    RUN,
    PROGRESS,
    DATAFLOW,
)
