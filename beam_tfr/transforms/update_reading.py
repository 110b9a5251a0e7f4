"""Reads the images of one shard for an update, copying what the dataset already has."""

import dataclasses
from collections.abc import Collection, Generator, Iterator, Mapping

import google_crc32c

from beam_tfr.engine import interrupt
from beam_tfr.inputs.read_ahead import FileContent, ReadAhead, read_refs
from beam_tfr.output.known_records import KnownRecord
from beam_tfr.records.tfrecords import RecordError
from beam_tfr.schema.errors import DataError, RejectError
from beam_tfr.schema.items import Change, ImageRef, Item, KnownImage, KnownState
from beam_tfr.schema.plan import Unfinished
from beam_tfr.transforms.copying import Copier, is_source, stored_source
from beam_tfr.transforms.shard_reading import ShardReader


@dataclasses.dataclass(frozen=True, kw_only=True)
class UpdateReader(ShardReader):
    """Reads the new and changed images of a shard, and copies the records of the other images.

    Attributes:
        copier: copies records of the dataset being updated.
    """

    ahead: ReadAhead
    copier: Copier

    def read_items(self) -> Generator[Item, None, Mapping[ImageRef, RejectError]]:
        """Yields the items of the shard in order; see `ShardReader.read_items`.

        Records that stay as they are, whatever happens to their neighbors, are copied several at a
        time. If one of these records is damaged, the shard starts over, and records are copied one
        by one.
        """
        stable = self.copier.find_stable(self.work)
        try:
            return (yield from self._read_beside(stable))
        except RecordError as error:
            value = Unfinished(
                shard=self.work.shard, causes={str(error): 1}, images=1, example=error.file
            )
            yield Item(self.work.shard, 0, "", None, value)
            return (yield from self._read_beside(()))

    def _read_beside(
        self, stable: Collection[int]
    ) -> Generator[Item, None, Mapping[ImageRef, RejectError]]:
        """Yields the items of the shard in order; items at stable positions come several at a time.

        Raises:
            RecordError: a record at a stable position is damaged.
        """
        size = len(self.work.refs)
        positions = [position for position in range(size) if position not in stable]
        known_images = [self.work.known_images.get(position) for position in positions]
        unread = {
            index for index, image in enumerate(known_images) if image and image.state.same_source
        }
        contents = self.read_contents(positions, leave=unread)
        records = self.copier.read_records(known_images)
        following = 0
        for position, image, (ref, content) in zip(positions, known_images, contents, strict=True):
            interrupt.check_interrupt()
            yield from self._copy_stretch(following, position)
            following = position + 1
            if image is None:
                result = self.make_item(position, ref, content)
            else:
                result = self._make_known_item(position, ref, content, image, records)
            if isinstance(result, RejectError):
                return {ref: result, **self.find_unread(contents)}
            yield result
        yield from self._copy_stretch(following, size)
        return {}

    def _copy_stretch(self, begin: int, end: int) -> Iterator[Item]:
        """Copies the records between two positions; all of these records stay as they are."""
        for copied in self.copier.copy_stretch(self.work, begin, end):
            interrupt.check_interrupt()
            yield Item(self.work.shard, begin, "", None, copied, change=Change.KEPT)
            begin += len(copied.refs)

    def _make_known_item(
        self,
        position: int,
        ref: ImageRef,
        content: FileContent,
        image: KnownImage,
        records: Iterator[KnownRecord | None],
    ) -> Item | RejectError:
        """Makes the item of an image that the dataset already has.

        Args:
            position: position of the image.
            ref: reference to the image.
            content: content of its file; None if it was not read.
            image: what is known about the image.
            records: records of the images that may be copied, from this image on.

        Returns:
            The same as `make_item`.
        """
        item = Item(self.work.shard, position, self.root + ref.key, ref, None)
        if image.reject:
            return item.with_value(image.reject)
        if image.state is KnownState.CHANGED:
            return self.add_content(item._replace(change=Change.CHANGED), content)
        record = next(records)
        if image.state is KnownState.REMADE:
            return self.add_content(_note_earlier(item, image, record), content)
        if isinstance(content, RejectError):
            return self.add_content(item, content)
        if isinstance(content, bytes) and record and not is_source(content, record):
            return self.add_content(item._replace(change=Change.CHANGED), content)
        if record and self.copier.can_copy(record, image, self.work.shard, position):
            value, change = self.copier.copy_record(record, ref, image)
            if image.is_added:
                change = Change.NEW
            return item._replace(value=value, change=change)
        if content is None:
            content = self._find_source(ref, record)
        return self.add_content(item._replace(change=self.copier.change_of(image)), content)

    def _find_source(self, ref: ImageRef, record: KnownRecord | None) -> FileContent:
        """Finds the source of a record that cannot be copied: in the record, or in its file.

        Raises:
            DataError: the update has no input from which to read it.
        """
        if record and not self.ahead.companions:
            source = stored_source(record)
            if source is not None:
                return source
        if not self.root:
            cause = "the sample for statistics needs its source"
            if record is None:
                cause = "its record is damaged"
            raise DataError(
                f"{ref.key}: {cause}; update with `input=` or `table=` to read the source again"
            )
        ((_, content),) = read_refs(self.root, [ref], self.ahead)
        return content


def _note_earlier(item: Item, image: KnownImage, record: KnownRecord | None) -> Item:
    """Returns an item whose new record is compared with the old record, unless that is damaged."""
    change = Change.NEW if image.is_added else Change.CHANGED
    earlier = google_crc32c.value(record.serialized) if record else None
    return item._replace(change=change, earlier=earlier)
