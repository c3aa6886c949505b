"""Clients that note their calls, or of which a method fails: around the real ones, never instead of them."""


class Recorded:
    """Every call goes into `calls` as (method, arguments) before it is made; `before` may do something first."""

    def __init__(self, client, calls, before=lambda client, name, arguments: None, after=lambda name: None):
        self._client = client
        self._calls = calls
        self._before = before
        self._after = after

    @classmethod
    def both(cls, plane, calls, **hooks):
        return cls(plane.placement, calls, **hooks), cls(plane.compute, calls, **hooks)

    def __getattr__(self, name):
        method = getattr(self._client, name)

        def call(*arguments, **values):
            self._calls.append((name, arguments))
            self._before(self._client, name, arguments)
            result = method(*arguments, **values)
            self._after(name)
            return result

        return call


class Wrapped:
    """A reservation service whose clients raise `errors[method]`, at most `times` times in all."""

    def __init__(self, plane, errors, *, times=10**9, seen=None):
        self.left = times

        def before(client, name, arguments):
            if name in errors and self.left:
                self.left -= 1
                raise errors[name]

        self.service = plane.new_service(*Recorded.both(plane, [] if seen is None else seen, before=before))
