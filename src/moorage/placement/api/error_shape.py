"""Errors as Placement words them: ``{"errors": [{"status", "title", "detail", "code", "request_id"}]}``.

The detail consists of the stock sentence of the status, a blank line, one space, the message and two spaces, as WebOb's
template formats it. A client that does not accept JSON gets HTML or plain text.
"""

import html
import re

from moorage.wire.errors import Problem
from moorage.wire.http import Response, accept_quality

UNDEFINED = "placement.undefined_code"

_STOCK = {
    400: "The server could not comply with the request since it is either malformed or otherwise incorrect.",
    401: "This server could not verify that you are authorized to access the document you requested.",
    403: "Access was denied to this resource.",
    404: "The resource could not be found.",
    409: "There was a conflict when trying to complete your request.",
    413: "The body of your request was too large for this server.",
    500: "The server has either erred or is incapable of performing the requested operation.",
    503: "The server is currently unavailable. Please try again at a later time.",
}
_TAG = re.compile(r"<[^>]*>")
#: WebOb has other templates for these, without spaces after the message.
_UNPADDED = (405, 406, 415)


def error_shape(problem: Problem) -> Response:
    json_quality = accept_quality(problem.accept, "application/json")
    html_quality = accept_quality(problem.accept, "text/html")
    if json_quality and json_quality >= html_quality:
        return Response(problem.status, {"errors": [_error(problem)]})
    if html_quality:
        return Response(problem.status, _page(problem).encode(), content_type="text/html; charset=UTF-8")
    plain = f"{problem.status} {problem.title}\n\n{_detail(problem)}"
    return Response(problem.status, plain.encode(), content_type="text/plain; charset=UTF-8")


def _error(problem: Problem) -> dict[str, object]:
    error: dict[str, object] = {"status": problem.status, "title": problem.title, "detail": _detail(problem)}
    if problem.version >= (1, 23):
        error["code"] = problem.code if problem.code.startswith("placement.") else UNDEFINED
    error["request_id"] = problem.request_id
    if problem.status == 406 and problem.error is not None:
        for name in ("max_version", "min_version"):
            if name in problem.error.fields:
                error[name] = problem.error.fields[name]
    return error


def _detail(problem: Problem) -> str:
    explanation = _explanation(problem).replace("\n", " ")
    message = _TAG.sub("", _message(problem).replace("\n", " "))
    return f"{explanation}\n\n {message}{'' if problem.status in _UNPADDED else '  '}"


def _page(problem: Problem) -> str:
    status = f"{problem.status} {problem.title}"
    explanation, message = html.escape(_explanation(problem)), html.escape(_message(problem))
    padding = "" if problem.status in _UNPADDED else "\n\n"
    return (
        f"<html>\n <head>\n  <title>{status}</title>\n </head>\n <body>\n  <h1>{status}</h1>\n"
        f"  {explanation}<br /><br />\n{message}\n{padding} </body>\n</html>"
    )


def _explanation(problem: Problem) -> str:
    match problem.status:
        case 405:
            return f"{problem.message} "
        case 406:
            # For a client that accepts everything, name the type of the answer.
            accept = "application/json" if problem.accept == "*/*" else problem.accept
            return (
                f"The resource could not be generated that was acceptable to your browser\n(content of type {accept}. "
            )
        case 415:
            media_type = problem.error.fields.get("media_type") if problem.error is not None else None
            return f"The request media type {media_type} is not supported by this server.\n"
    return _STOCK.get(problem.status, problem.title)


def _message(problem: Problem) -> str:
    if problem.status == 405:
        return "The method specified is not allowed for this resource."
    if problem.code == "moorage.microversion":
        # Moorage's sentence continues with the supported range; here the range is in separate fields.
        return f"Invalid microversion: {problem.message.partition('. ')[0]}"
    return "" if problem.message == _STOCK[404] else problem.message
