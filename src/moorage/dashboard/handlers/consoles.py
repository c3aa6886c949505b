"""The page of a server's serial console."""

from urllib.parse import quote, urlsplit

from moorage.dashboard.page_request import PageRequest, render_page
from moorage.dashboard.pages import Page, policy_with_console
from moorage.wire.http import Response


def show_console(page_request: PageRequest, server_id: str) -> Page:
    """The button that opens it. A console is not opened by following a link, because that ends the one before."""
    return _page(page_request, server_id, "")


def open_console(page_request: PageRequest, server_id: str) -> Response:
    """The page with the terminal, which may connect to the proxy of consoles and nowhere else."""
    path = f"/v2.1/servers/{quote(server_id, safe='')}/remote-consoles"
    wanted = {"remote_console": {"protocol": "serial", "type": "serial"}}
    url = str(page_request.client("compute").request("POST", path, json=wanted)["remote_console"]["url"])
    answer = render_page(page_request, _page(page_request, server_id, url))
    proxy = urlsplit(url)
    answer.headers["content-security-policy"] = policy_with_console(f"{proxy.scheme}://{proxy.netloc}")
    return answer


def _page(page_request: PageRequest, server_id: str, url: str) -> Page:
    server = page_request.client("compute").get(f"/v2.1/servers/{quote(server_id, safe='')}")["server"]
    values = {"server_id": server["id"], "server_name": server["name"], "url": url}
    return Page("console.html", f"Console of {server['name']}", values)
