"""S3, and stores that speak like it, through s3fs: its sessions, but request by request.

botocore and s3fs would try again too, on top of each other and on different grounds; here every request is tried
again by `patiently` alone.  An object is stored in one request, which S3 takes whole or not at all; only a file above
PART needs several, and then the unfinished upload is given up by its id if anything fails.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from mona_infer.errors import InputError
from mona_infer.io.remote.place import Place
from mona_infer.io.remote.retry import Incomplete, code, is_absent, patiently
from mona_infer.io.remote.stores import Ranged, Stat

PART = 64 << 20  # bytes
CONNECT, SILENCE = 10, 30  # seconds to connect, and without a byte
LEFT_BEHIND = timedelta(days=1)  # an older unfinished upload of the same object is of a killed process


class S3(Ranged):
    def __init__(self) -> None:
        import s3fs

        self.fs: Any = s3fs.S3FileSystem(
            skip_instance_cache=True,
            use_listings_cache=False,
            cache_regions=False,
            config_kwargs={
                "retries": {"total_max_attempts": 1, "mode": "standard"},
                "connect_timeout": CONNECT,
                "read_timeout": SILENCE,
                "request_checksum_calculation": "when_required",  # Content-MD5 does it, which older stores know too
            },
        )
        self.fs.retries = 1

    def _ask(self, method: str, place: Place, what: str, **words: Any) -> dict[str, Any]:
        bucket, _, key = place.path.partition("/")
        words = {word: value for word, value in ({"Bucket": bucket, "Key": key} | words).items() if value is not None}

        def request() -> dict[str, Any]:
            answer: dict[str, Any] = self.fs.call_s3(method, **words)
            return answer

        return patiently(request, what, place)

    def stat(self, place: Place) -> Stat | None:
        try:
            found = self._ask("head_object", place, "read")
        except InputError as error:
            if error.__cause__ is None or not is_absent(error.__cause__):
                raise
            return None
        return _stat(found)

    def part(self, place: Place, stat: Stat, start: int, end: int) -> bytes:
        from fsspec.asyn import sync

        bucket, _, key = place.path.partition("/")
        words = {"Bucket": bucket, "Key": key, "IfMatch": stat.version}
        if end - start < stat.size:
            words["Range"] = f"bytes={start}-{end - 1}"

        def get() -> bytes:
            answer = self.fs.call_s3("get_object", **words)
            try:
                data: bytes = sync(self.fs.loop, answer["Body"].read)
            finally:
                answer["Body"].close()
            if len(data) != end - start:
                raise Incomplete(f"{len(data)} of {end - start} bytes arrived")
            return data

        return patiently(get, "read", place)

    def names(self, folder: Place) -> Iterator[str]:
        bucket, _, key = folder.path.partition("/")
        prefix = f"{key.rstrip('/')}/" if key.rstrip("/") else ""
        more: dict[str, str] = {}
        while True:
            words = {"Bucket": bucket, "Prefix": prefix, **more}

            def page(words: dict[str, str] = words) -> dict[str, Any]:
                answer: dict[str, Any] = self.fs.call_s3("list_objects_v2", **words)
                return answer

            found = patiently(page, "listed", folder)
            for entry in found.get("Contents", ()):
                if name := str(entry["Key"]).removeprefix(prefix):
                    yield name
            if not found.get("IsTruncated"):
                return
            more = {"ContinuationToken": found["NextContinuationToken"]}

    def write(self, path: Path, place: Place) -> None:
        if path.stat().st_size > PART:
            self._write_parts(path, place)
            return
        data = path.read_bytes()
        digest = hashlib.md5(data, usedforsecurity=False)
        kept = _stat(self._ask("put_object", place, "written", Body=data, ContentMD5=_header(digest)))
        if kept.md5 != digest.hexdigest():  # encrypted with a key of KMS: the tag is no checksum
            self.compare(path, place)

    def _write_parts(self, path: Path, place: Place) -> None:
        upload = self._begin_upload(place)
        try:
            parts: list[dict[str, Any]] = []
            with path.open("rb") as file:
                while data := file.read(PART):
                    digest = hashlib.md5(data, usedforsecurity=False)
                    number = len(parts) + 1
                    words = {"UploadId": upload, "PartNumber": number, "Body": data, "ContentMD5": _header(digest)}
                    parts.append(
                        {"PartNumber": number, "ETag": self._ask("upload_part", place, "written", **words)["ETag"]}
                    )
            self._complete(place, upload, parts)
        except BaseException:
            self._give_up(place, upload)
            raise
        self.compare(path, place)

    def _complete(self, place: Place, upload: str, parts: list[dict[str, Any]]) -> None:
        try:
            self._ask("complete_multipart_upload", place, "written", UploadId=upload, MultipartUpload={"Parts": parts})
        except InputError as error:
            # It was complete, and the answer that said so was lost: the next attempt finds no such upload.
            if error.__cause__ is None or code(error.__cause__) != "NoSuchUpload" or self.stat(place) is None:
                raise

    def _give_up(self, place: Place, upload: str) -> None:
        try:
            self._ask("abort_multipart_upload", place, "written", UploadId=upload)
        except InputError as error:
            if error.__cause__ is None or not is_absent(error.__cause__):
                raise

    def _begin_upload(self, place: Place) -> str:
        """The id of a new upload; one whose answer was lost, and an old one of a killed process, are given up."""
        bucket, _, key = place.path.partition("/")
        begun, attempts = time.monotonic(), 0

        def create() -> str:
            nonlocal attempts
            attempts += 1
            return str(self.fs.call_s3("create_multipart_upload", Bucket=bucket, Key=key)["UploadId"])

        upload = patiently(create, "written", place)
        listed = self._ask("list_multipart_uploads", place, "written", Key=None, Prefix=key)
        found = {each["UploadId"]: each["Initiated"] for each in listed.get("Uploads", ()) if each["Key"] == key}
        ours = found.pop(upload, datetime.now(UTC))  # by the clock of the store
        window = timedelta(seconds=time.monotonic() - begun + 1) if attempts > 1 else timedelta(0)
        for other, initiated in found.items():
            if timedelta(0) <= ours - initiated < window or ours - initiated > LEFT_BEHIND:
                self._give_up(place, other)
        return upload


@cache
def connected(process: int) -> S3:
    """One session for all threads of a process (s3fs would make one for each, which takes half a second)."""
    return S3()


def _stat(answer: dict[str, Any]) -> Stat:
    tag = str(answer.get("ETag", ""))
    plain = tag.strip('"').lower()
    opaque = answer.get("ServerSideEncryption", "AES256") != "AES256" or "SSECustomerAlgorithm" in answer
    md5 = plain if len(plain) == 32 and not opaque else ""  # with a dash: of several parts
    return Stat(int(answer.get("ContentLength", 0)), tag, md5)


def _header(digest: Any) -> str:
    return base64.b64encode(digest.digest()).decode()
