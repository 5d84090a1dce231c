"""What is known of profiles. What they have learned is in `punctual.profiles`."""

from dataclasses import dataclass, field

from punctual.kube import api
from punctual.kube.api.resources import PROFILES
from punctual.kube.known.store import Body, Described, InTerm, NamedStore, StoreListener, asked_in


@dataclass(slots=True)
class KnownProfile(Described):
    """A profile as it is now."""

    metadata: api.Metadata
    spec: api.ProfileSpec
    deleting: bool
    term: InTerm = field(default_factory=InTerm)

    def forget_term(self) -> None:
        """Forget what a term has read or decided."""
        self.term = InTerm()


class ProfileStore(NamedStore[KnownProfile]):
    """All profiles that can be read."""

    replaces = True

    def __init__(self, listener: StoreListener) -> None:
        super().__init__(PROFILES, listener)

    def _make(self, body: Body) -> KnownProfile | None:
        profile, flaw = asked_in(body, api.Profile)
        if profile is None:
            meta = body["metadata"]
            self._listener.unreadable("Profile", f"{meta['namespace']}/{meta['name']}", flaw)
            return None
        return KnownProfile(profile.metadata, profile.spec, profile.metadata.deletion_timestamp is not None)

    def _edit(self, known: KnownProfile, body: Body) -> bool:
        if (made := self._make(body)) is None:
            return False
        same = known.spec == made.spec  # no cost has changed
        known.metadata, known.spec, known.deleting = made.metadata, made.spec, made.deleting
        return not same
