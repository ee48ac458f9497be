"""The web application around the answers. Every address begins with a token.

Nothing is read from paths that a request names: a request names a number of a point, or nothing.
"""

from __future__ import annotations

import hmac
import logging
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from phaze.report.serve.answers import Answers, NoSuchPointError
from phaze_common.errors import InputError, PhazeError
from phaze_common.json_text import parse_json

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

logger = logging.getLogger(__name__)

MOST_BODY_BYTES = 4096
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'; "
        "img-src data: blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",  # the address holds the token
    "X-Content-Type-Options": "nosniff",
}


class TokenGuard:
    """Passes on what is addressed to ``/TOKEN/...``, without the token; else status 403."""

    def __init__(self, app: Any, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """As ASGI calls it."""
        from starlette.responses import PlainTextResponse

        if scope["type"] != "http":  # there are no others, and none is let in
            return
        first, slash, rest = str(scope["path"]).removeprefix("/").partition("/")
        if not hmac.compare_digest(first.encode(), self._token) or not slash:
            await PlainTextResponse(
                "this address is not one that 'phaze serve' printed\n", 403, HEADERS
            )(scope, receive, send)
            return
        inner = {**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode()}
        await self._app(inner, receive, send)


def application(answers: Answers, token: str) -> Any:
    """The page at ``/TOKEN/``; reports, plans, explanations below ``/TOKEN/points/NUMBER/``."""
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import HTMLResponse, JSONResponse
    from starlette.routing import Route

    def whole(request: Request) -> Response:
        return HTMLResponse(answers.page(), headers=HEADERS)

    def of_point(request: Request) -> Response:
        return HTMLResponse(answers.point_page(request.path_params["number"]), headers=HEADERS)

    def plan(request: Request) -> Response:
        return JSONResponse(asdict(answers.plan(request.path_params["number"])), headers=HEADERS)

    async def explain(request: Request) -> Response:
        instead = _instead(await _body(request))
        answer = await run_in_threadpool(answers.explain, request.path_params["number"], instead)
        return JSONResponse(asdict(answer), headers=HEADERS)

    def problem(status: int, said: str) -> Response:
        return JSONResponse({"problem": said}, status, HEADERS)

    async def missing(request: Request, error: Exception) -> Response:
        return problem(404, "there is nothing at this address; go back to the page")

    async def refused(request: Request, error: Exception) -> Response:
        return problem(422, str(error))

    async def failed(request: Request, error: Exception) -> Response:
        logger.warning("%s", error)
        return problem(500, str(error))

    handlers: Any = {404: missing, NoSuchPointError: missing}
    handlers |= {InputError: refused, PhazeError: failed}
    routes = [
        Route("/", whole),
        Route("/points/{number:int}/", of_point),
        Route("/points/{number:int}/plan", plan),
        Route("/points/{number:int}/explain", explain, methods=["POST"]),
    ]
    inner = Starlette(routes=routes, exception_handlers=handlers)
    inner.router.redirect_slashes = False  # it would lead to addresses without the token
    return TokenGuard(inner, token)


async def _body(request: Request) -> bytes:
    """What was sent, as much of it as can be a question.

    Raises:
        InputError: it is longer.
    """
    found = b""
    async for chunk in request.stream():
        found += chunk
        if len(found) > MOST_BODY_BYTES:
            raise InputError(f"a question has at most {MOST_BODY_BYTES} bytes")
    return found


def _instead(body: bytes) -> str:
    try:
        document = parse_json(body, "the question")
    except InputError as error:
        raise InputError('a question is a JSON document, {"instead": "pp=8"}') from error
    instead = document.get("instead") if isinstance(document, dict) else None
    if not isinstance(instead, str):
        raise InputError('a question names what to have instead, {"instead": "pp=8"}')
    return instead
