"""How a MONAI Label client asks whether it needs a token, and turns a password into one: the password is the token."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Request

from mona_infer.serving.routes.common import refuse
from mona_infer.serving.safety import Rules


def router(rules: Rules) -> APIRouter:
    entry = APIRouter(prefix="/auth", tags=["MONAI Label"])

    @entry.get("/")
    def enabled() -> dict[str, Any]:
        return {"enabled": rules.token is not None, "client_id": "mona", "realm": "mona"}

    @entry.post("/token")
    def token(password: Annotated[str, Form()], username: Annotated[str, Form()] = "") -> dict[str, str]:
        if not rules.token_is_right(password):
            refuse(401, "this is not the token; any user name will do, and the password is what `mona serve` printed")
        return {"access_token": password, "token_type": "bearer"}

    @entry.get("/token/valid")
    def valid(request: Request) -> dict[str, Any]:
        given = request.headers.get("authorization", "").partition(" ")[2].strip()
        if not rules.token_is_right(given):
            refuse(401, "this token is not valid")
        return {"username": "user", "roles": []}

    return entry
