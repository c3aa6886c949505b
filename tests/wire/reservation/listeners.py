"""Receivers of before-end actions: a real HTTP server and a real SMTP server, whose answers tests choose."""

import json
import socketserver
import threading
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Listener:
    """A context manager that listens; `seen` has the received messages."""

    def __init__(self, server):
        self._server = server
        self.port = server.server_address[1]

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()


class Hooks(Listener):
    """An HTTP server. `answers`: {path: (status, headers)}, 204 for other paths.

    `seen` has (path, body) of each request, and `keys` its idempotency key.
    """

    def __init__(self):
        self.seen, self.keys, self.answers = [], [], {}
        hooks = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                hooks.seen.append((self.path, body))
                hooks.keys.append(self.headers["Idempotency-Key"])
                status, headers = hooks.answers.get(self.path, (204, {}))
                self.send_response(status)
                for name, value in {"Content-Length": "0", **headers}.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *args):
                pass

        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        self.origin = f"http://127.0.0.1:{self.port}"


class Mailbox(Listener):
    """An SMTP server. `seen` has (sender, recipients, message).

    While `refuses` is set, the server answers each recipient with it.
    """

    def __init__(self):
        self.seen, self.verbs, self.refuses = [], [], None
        box = self

        class Conversation(socketserver.StreamRequestHandler):
            """One SMTP session, with the commands of RFC 5321 that a sender needs."""

            def say(self, text):
                self.wfile.write(text.encode() + b"\r\n")

            def handle(self):
                self.say("220 mail.example.org ready")
                sender, recipients = "", []
                for line in self.rfile:
                    verb = line[:4].upper()
                    box.verbs.append(verb.decode())
                    if verb in (b"EHLO", b"HELO"):
                        self.say("250 mail.example.org")
                    elif verb == b"MAIL":
                        sender, recipients = line.decode().split("<")[1].split(">")[0], []
                        self.say("250 fine")
                    elif verb == b"RCPT" and box.refuses:
                        self.say(box.refuses)
                    elif verb == b"RCPT":
                        recipients.append(line.decode().split("<")[1].split(">")[0])
                        self.say("250 fine")
                    elif verb == b"DATA":
                        self.say("354 go on")
                        lines = []
                        while (text := self.rfile.readline()) not in (b".\r\n", b""):
                            lines.append(text.removeprefix(b"."))
                        message = message_from_bytes(b"".join(lines), policy=policy.default)
                        box.seen.append((sender, recipients, message))
                        self.say("250 taken")
                    elif verb == b"QUIT":
                        self.say("221 bye")
                        return
                    else:
                        self.say("250 fine")

        super().__init__(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Conversation))
