"""What a guest job is told: whether it runs, and that it has ended."""

from punctual import reasons
from punctual.guests.guest import GuestState
from punctual.scheduling.model.wording import some, span
from punctual.verdict import Verdict


def answer(now: float, st: GuestState) -> None:
    """Say whether the job can run."""
    if st.record.ended:
        return
    guest, before = st.job, st.record.admitted
    if guest.refusal is not None:
        verdict = Verdict("False", *guest.refusal)
    elif guest.suspend:
        verdict = Verdict("False", reasons.SUSPENDED, "spec.suspend is true: its chunks hand back what is left")
    else:
        text = f"it has no deadline: it runs on what the nodes' own work leaves ({guest.policy})"
        verdict = Verdict("True", reasons.GUEST, text)
    since = None if guest.refusal is None else st.record.refused or now
    st.record = st.record._replace(
        admitted=verdict, refused=since, observed_generation=max(guest.generation, st.record.observed_generation)
    )
    if before is None or before[:2] != verdict[:2]:
        st.emit("Normal" if guest.refusal is None else "Warning", verdict.reason, verdict.message)


def finish(now: float, st: GuestState) -> None:
    """End the job if nothing is left to do."""
    if st.record.completed.total == st.job.units:
        taken = span(now - st.record.started) if st.record.started is not None else "no time"
        verdict = Verdict("True", reasons.COMPLETED, f"{some(st.job.units, 'unit')} done in {taken}")
        st.record = st.record._replace(completed_condition=verdict)
        st.emit("Normal", verdict.reason, verdict.message)
    if st.record.completed_condition or st.record.failed_condition:
        st.record = st.record._replace(finished=now)
