"""An OpenID provider whose every answer a test chooses: the peer for attacks, which no real provider makes.

By default it is honest. A test changes `claims`, `header`, `key`, `jwks`, `metadata`, or replaces an answer as a whole.
"""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey


class LyingProvider:
    def __init__(self, url, clock):
        self.url, self.clock = url, clock
        self.issuer = url
        self.key = new_key("first")
        self.header = {"alg": "RS256", "kid": "first"}
        self.claims = {}  #: replaces or, with None, removes claims
        self.nonce = None  #: set by `authorize`
        self.metadata = {}
        self.jwks = None
        self.algorithms = ["RS256", "HS256", "none"]
        self.answers = {}  #: {path: function of the handler that answers instead}
        self.token_requests = []
        self.jwks_requests = 0

    def metadata_document(self):
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/jwks",
            "device_authorization_endpoint": f"{self.url}/device",
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            **self.metadata,
        }

    def jwks_document(self):
        self.jwks_requests += 1
        return self.jwks or {"keys": [self.key.as_dict(private=False)]}

    def id_token(self, **claims):
        now = int(self.clock.now().timestamp())
        said = {
            "iss": self.issuer, "sub": "1", "aud": "dashboard", "exp": now + 300, "iat": now, "nonce": self.nonce,
            "preferred_username": "ada", "groups": ["lab"], **self.claims, **claims,
        }  # fmt: skip
        said = {name: value for name, value in said.items() if value is not None}
        return jwt.encode(self.header, said, self.key, algorithms=self.algorithms)

    def token_document(self, form):
        self.token_requests.append(form)
        return {"token_type": "Bearer", "access_token": "an access token", "id_token": self.id_token()}

    def authorize(self, url):
        """What the browser brings back from the address `url`: the query of the callback."""
        asked = dict(parse_qsl(urlsplit(url).query))
        self.nonce = asked["nonce"]
        return {"state": asked["state"], "code": "a-code"}


def new_key(kid):
    return RSAKey.generate_key(2048, {"kid": kid, "use": "sig"}, private=True)


@contextmanager
def running_provider(clock, host="127.0.0.1"):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer(None)

        def do_POST(self):
            raw = self.rfile.read(int(self.headers["content-length"]))
            self.answer(dict(parse_qsl(raw.decode())))

        def answer(self, form):
            if own := provider.answers.get(self.path):
                own(self)
                return
            if self.path.startswith("/authorize?"):
                self.send_back()
                return
            documents = {
                "/.well-known/openid-configuration": provider.metadata_document,
                "/jwks": provider.jwks_document,
                "/token": lambda: provider.token_document(form),
            }
            self.send(200, documents[self.path]())

        def send_back(self):
            """Sends the browser back at once, as a provider does at which the person is signed in."""
            back = dict(parse_qsl(urlsplit(self.path).query))["redirect_uri"]
            self.send_response(302)
            self.send_header("location", f"{back}?{urlencode(provider.authorize(self.path))}")
            self.send_header("content-length", "0")
            self.end_headers()

        def send(self, status, document):
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    provider = LyingProvider(f"http://{host}:{server.server_port}", clock)
    yield provider
    server.shutdown()
    server.server_close()
