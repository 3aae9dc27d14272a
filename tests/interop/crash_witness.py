"""The interface of what a crash must neither take nor bring back, beside the values and queues of `crash.py`."""

SESSION_SECONDS = 1_000_000
"""Session Expiry Interval of clients whose session outlives the suite."""


class Witness:
    """Clients with one kind of state, over all lives of the gateway."""

    name = "?"
    """What an answer promises about it."""

    def __init__(self, ending):
        self.ending = ending

    async def begin(self, gateway):
        """Before the first life."""

    async def open(self, gateway):
        """At the beginning of each life."""

    async def write(self):
        """Changes the state until it is cancelled."""

    async def close(self):
        """After the end of each life: lets go of connections whose peer is dead."""

    async def judge(self, gateway) -> str | None:
        """What is wrong after a crash."""

    async def last(self, gateway) -> str | None:
        """What is wrong when there is no further life."""


class Membership:
    """Whether something is there, as far as answers tell; each change is answered or cut off."""

    def __init__(self, names):
        self.present = dict.fromkeys(names, False)
        self.doubtful: set[str] = set()
        """Those whose last change was cut off: they are there or not."""

    def begin(self, name):
        """A change of it is under way."""
        self.doubtful.add(name)

    def done(self, name, present):
        self.present[name] = present
        self.doubtful.discard(name)

    def refused(self, name):
        """It is as it was before."""
        self.doubtful.discard(name)

    def judge(self, found: set[str]) -> str | None:
        """What is wrong with those that are there; they are right from now on."""
        for name, present in self.present.items():
            if name not in self.doubtful and present != (name in found):
                return f"{name} is {'gone' if present else 'there again'}"
        if not found <= set(self.present):
            return f"{found - set(self.present)} is there, which nobody asked for"
        self.present = {name: name in found for name in self.present}
        self.doubtful.clear()
        return None
