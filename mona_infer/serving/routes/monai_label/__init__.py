"""The part of MONAI Label's protocol that its plugins for 3D Slicer and OHIF use, so that neither needs one of ours.

Written from the calls of its client (monailabel 0.8.5).  An image is a case of the data set or a scan that was
uploaded; its id is looked up and never becomes a path.
"""

from __future__ import annotations

from fastapi import APIRouter

from mona_infer.serving.routes.monai_label.datastore import add_datastore
from mona_infer.serving.routes.monai_label.inference import add_inference
from mona_infer.serving.routes.monai_label.information import add_information
from mona_infer.serving.routes.monai_label.learning import add_learning
from mona_infer.serving.routes.monai_label.protocol import Protocol
from mona_infer.serving.routes.monai_label.sessions import add_sessions
from mona_infer.serving.site import Site


def router(site: Site) -> APIRouter:
    api = APIRouter(tags=["MONAI Label"])
    protocol = Protocol(site)
    for add in (add_information, add_sessions, add_datastore, add_inference, add_learning):
        add(api, protocol)
    return api
