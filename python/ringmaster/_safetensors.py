# SPDX-License-Identifier: Apache-2.0
"""The file format safetensors: a header of JSON with name, type, shape and place of each tensor, then their bytes.

The header has 8 bytes of little-endian length in front of it. The places are relative to the end of the header.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import pathlib
import tempfile
from typing import IO, Dict, Iterable, Mapping, Optional, Tuple, Union

from ._errors import Error
from ._state import Array

BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2, "U32": 4, "I32": 4,
         "F32": 4, "U64": 8, "I64": 8, "F64": 8, "C64": 8}  # fmt: skip
LARGEST_HEADER = 100_000_000  # the limit of the format

Path = Union[str, "os.PathLike[str]"]


@dataclasses.dataclass(frozen=True)
class Entry:
    """A tensor in a file."""

    file: pathlib.Path
    type: str
    shape: Tuple[int, ...]
    offset: int  # from the start of the file
    bytes: int

    def read(self) -> bytearray:
        data = bytearray(self.bytes)
        with open(self.file, "rb") as file:
            file.seek(self.offset)
            if file.readinto(data) != self.bytes:
                raise Error(f"{self.file} is shorter than its header says: it is damaged")
        return data


def write(path: Path, arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
    """Writes the file, and replaces an existing one only when it is complete."""
    header: Dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name, array in arrays.items():
        header[name] = {
            "dtype": array.type,
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.bytes],
        }
        offset += array.bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data is aligned to 8 bytes
    folder, base = os.path.split(os.path.abspath(os.fspath(path)))
    # A new file of a name that cannot be predicted: in a folder that others write to, one might be a link to another file.
    handle, part = tempfile.mkstemp(prefix=f"{base}.part-", dir=folder)
    try:
        mask = os.umask(0)
        os.umask(mask)
        os.fchmod(handle, 0o666 & ~mask)
        with open(handle, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for array in arrays.values():
                file.write(array.view())
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        _sync(folder)
    except BaseException:
        pathlib.Path(part).unlink(missing_ok=True)
        raise


def _sync(folder: str) -> None:
    """Makes the new name in a folder survive a crash of the machine."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems do not offer it
            raise
    finally:
        os.close(handle)


def read_header(path: Path) -> Tuple[Dict[str, Entry], Dict[str, str]]:
    """Returns the tensors of a file, and its metadata. Errors: it is no such file, or damaged."""
    path = pathlib.Path(path)
    with open(path, "rb") as file:
        try:
            return _read_header(path, file)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Error(f"{path} is not a safetensors file, or it is damaged: {error}") from error


def _read_header(path: pathlib.Path, file: IO[bytes]) -> Tuple[Dict[str, Entry], Dict[str, str]]:
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(LARGEST_HEADER, size - 8):
        raise ValueError(f"a header of {length} bytes in a file of {size}")
    header = json.loads(file.read(length))
    metadata = {str(key): str(value) for key, value in header.pop("__metadata__", {}).items()}
    entries = {}
    for name, fields in header.items():
        begin, end = fields["data_offsets"]
        shape = tuple(fields["shape"])
        elements = 1
        for extent in shape:
            elements *= extent
        if fields["dtype"] not in BYTES:
            raise ValueError(f"{name} has the unknown type {fields['dtype']}")
        if not 0 <= begin <= end <= size - 8 - length or end - begin != elements * BYTES[fields["dtype"]]:
            raise ValueError(
                f"the bytes {begin} to {end} do not fit {name}, {fields['dtype']} of shape {shape}"
            )
        entries[name] = Entry(path, fields["dtype"], shape, 8 + length + begin, end - begin)
    return entries, metadata


def open_weights(path: Path) -> Tuple[Dict[str, Entry], Dict[str, str]]:
    """Returns the tensors of a file, or of a folder of Hugging Face: model.safetensors, or the shards of its index."""
    path = pathlib.Path(path)
    if not path.is_dir():
        return read_header(path)
    if (path / "model.safetensors").is_file():
        return read_header(path / "model.safetensors")
    index = path / "model.safetensors.index.json"
    if not index.is_file():
        raise Error(f"{path} has neither model.safetensors nor model.safetensors.index.json")
    try:
        shards = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise Error(f"{index} is damaged: {error!r}") from error
    entries: Dict[str, Entry] = {}
    metadata: Dict[str, str] = {}
    for shard in shards:
        if not isinstance(shard, str) or pathlib.PurePath(shard).name != shard:
            raise Error(f"{index} names {shard!r}, which is not a file of its folder")
        found, notes = read_header(path / shard)
        entries.update(found)
        metadata.update(notes)
    return entries, metadata


def compare(
    expected: Mapping[str, Tuple[int, ...]], found: Mapping[str, Entry], optional: Iterable[str], where: Path
) -> None:
    """Checks that names and shapes are equal. Errors: all differences, listed. optional: may be absent from the file."""
    may_lack = set(optional)
    lines = [f"  {name} {shape}: not in the file" for name, shape in expected.items()
             if name not in found and name not in may_lack]  # fmt: skip
    lines += [
        f"  {name} {entry.shape}: not in the model" for name, entry in found.items() if name not in expected
    ]
    lines += [f"  {name}: {found[name].shape} in the file, {shape} in the model" for name, shape in expected.items()
              if name in found and found[name].shape != shape]  # fmt: skip
    if lines:
        shown: Optional[str] = f"\n  and {len(lines) - 20} more" if len(lines) > 20 else ""
        raise Error(f"{os.fspath(where)} does not fit the model:\n" + "\n".join(lines[:20]) + (shown or ""))
