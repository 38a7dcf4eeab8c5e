"""/session/: a scan that is kept for a while."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, UploadFile

from mona_infer.serving.routes.common import file_answer, refuse, told
from mona_infer.serving.routes.monai_label.protocol import (
    SESSION,
    Protocol,
    of_session,
)
from mona_infer.serving.scans import Scan


def add_sessions(api: APIRouter, protocol: Protocol) -> None:
    site = protocol.site

    @api.put("/session/")
    def create(files: list[UploadFile]) -> dict[str, Any]:
        """Upload a scan for a while."""
        if len(files) != 1:
            refuse(422, f"expected one file (a DICOM series as a zip), found {len(files)}")
        with told(site):
            scan = site.scans.add(files[0].file, files[0].filename, expires=time.time() + SESSION)
        return {"session_id": scan.id, "session_info": _session(scan)}

    @api.get("/session/{id}")
    def get(id: str, image: bool = False) -> Any:
        scan = of_session(site, id)
        return file_answer(site.scans.path(scan), f"{scan.id}-{scan.file}") if image else _session(scan)

    @api.delete("/session/{id}")
    def remove(id: str) -> dict[str, Any]:
        scan = of_session(site, id)
        site.scans.remove(scan)
        return _session(scan)


def _session(scan: Scan) -> dict[str, Any]:
    left = max(0, round((scan.expires or 0.0) - time.time()))
    return {"name": scan.id, "image": scan.file, "meta": {}, "creation_ts": round(scan.created), "expiry": left}
