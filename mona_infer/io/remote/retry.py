"""Which failures of a store pass by themselves, how long to wait for that, and what to say when it was in vain.

Transient: an answer of 5xx, 429 or 408, a connection refused, reset or silent, a body that ends early or has another
checksum.  Permanent, never tried again: 403, 404, no such bucket, no credentials, a wrong request.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from mona_infer.errors import InputError, MonaError

ATTEMPTS = 20  # of one request: if each second one fails, one in a million requests fails this often
LONGEST = 120.0  # seconds after which a request that failed is not begun again
FIRST = 5  # attempts at a store that has never answered: its address may be wrong
SHORTEST_WAIT, GROWTH, LONGEST_WAIT = 0.05, 1.6, 5.0  # seconds between attempts
TRANSIENT_CODES = {
    "BadDigest",
    "IncompleteBody",
    "InternalError",
    "OperationAborted",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "XAmzContentSHA256Mismatch",
}
# botocore's own errors that pass; its others are of settings and arguments
PASSING = {
    "HTTPClientError",
    "ConnectionError",
    "IncompleteReadError",
    "ResponseStreamingError",
    "FlexibleChecksumError",
}
ADDRESS = "check the address (AWS_ENDPOINT_URL) and the network"
DENIED = (
    "check the credentials and the policy of the bucket; without the right to list, absent objects look like this too"
)

T = TypeVar("T")
_jitter = random.Random()
interrupted = threading.Event()  # nobody waits any more for a store that does not answer
_answered: set[str] = set()  # schemes of which a store has answered this process


class Incomplete(Exception):
    """What arrived is not what the store has said that there is: worth another attempt."""


def patiently(request: Callable[[], T], what: str, place: object) -> T:
    """The request's result; `what` is what it does, as in "cannot be read"."""
    scheme, _, _ = str(place).partition("://")
    begun, failures = time.monotonic(), 0
    while True:
        try:
            result = request()
        except Exception as error:
            if isinstance(error, MonaError | ImportError):
                raise
            failures += 1
            if http_status(error):
                _answered.add(scheme)
            if not is_transient(error):
                raise InputError(f"{place} cannot be {what}: {reason(error)}") from error
            allowed = ATTEMPTS if scheme in _answered else FIRST
            wait = min(SHORTEST_WAIT * GROWTH ** (failures - 1), LONGEST_WAIT) * _jitter.uniform(0.5, 1)
            if failures >= allowed or time.monotonic() - begun + wait > LONGEST:
                tried = f"{failures} attempts in {time.monotonic() - begun:.0f} s"
                raise InputError(f"{place} cannot be {what}, after {tried}: {reason(error)}") from error
            if interrupted.wait(wait):
                raise InputError(f"{place} was not {what}: interrupted") from error
        else:
            _answered.add(scheme)
            return result


def is_transient(error: BaseException) -> bool:
    if isinstance(error, Incomplete):
        return True
    if code(error) in TRANSIENT_CODES:
        return True
    if status := http_status(error):
        return status in (408, 429) or (status >= 500 and status != 501)
    if isinstance(
        error, FileNotFoundError | PermissionError | FileExistsError | NotADirectoryError | IsADirectoryError
    ):
        return False
    names = {kind.__name__ for kind in type(error).__mro__}
    if "BotoCoreError" in names:
        return bool(names & PASSING)
    return isinstance(error, OSError | EOFError) or bool(
        names & {"ClientError", "ResponseParserError", "FSTimeoutError"}
    )


def is_absent(error: BaseException) -> bool:
    return isinstance(error, FileNotFoundError) or http_status(error) == 404


def reason(error: BaseException) -> str:
    """In words that never hold a credential: of a refused request only the code is told."""
    known = code(error)
    status = http_status(error)
    if known == "NoSuchBucket":
        return "there is no such bucket"
    if known in ("NoSuchKey", "NoSuchUpload") or is_absent(error):
        return "it does not exist (any more)"
    if status == 403 or isinstance(error, PermissionError):
        named = f"permission denied ({known})" if known and not known.isdigit() else "permission denied"
        return f"{named}; {DENIED}"
    if status == 301 or known in ("PermanentRedirect", "AuthorizationHeaderMalformed"):
        return "the bucket is in another region; set AWS_DEFAULT_REGION to it"
    if known or status:
        return f"the store answered {' '.join(dict.fromkeys(str(part) for part in (status, known) if part))}"
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if kinds & {"NoCredentialsError", "PartialCredentialsError"}:
        return "no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
    if kinds & {"EndpointConnectionError", "ConnectTimeoutError", "ConnectionRefusedError", "ClientConnectorError"}:
        return f"the store cannot be reached; {ADDRESS}"
    if "FlexibleChecksumError" in kinds:
        return "what arrived has another checksum than the store tells"
    if isinstance(error, Incomplete):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def code(error: BaseException) -> str:
    """S3's own word for a failure, such as NoSuchKey."""
    return next((str(answer.get("Error", {}).get("Code", "")) for answer in _answers(error)), "")


def http_status(error: BaseException) -> int:
    """Of HTTP; 0 if there was no answer."""
    for answer in _answers(error):
        if status := answer.get("ResponseMetadata", {}).get("HTTPStatusCode"):
            return int(status)
    found = getattr(error, "status", 0)  # aiohttp, so of http:// and others
    return found if isinstance(found, int) else 0


def _answers(error: BaseException) -> Iterator[dict[str, Any]]:
    """s3fs gives failures an exception of Python, and keeps botocore's as the cause."""
    seen: BaseException | None = error
    while seen is not None:
        answer = getattr(seen, "response", None)
        if isinstance(answer, dict):
            yield answer
        seen = seen.__cause__
