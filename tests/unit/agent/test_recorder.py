"""What the experiments' recorder prints of a pod: it uses the agent's own modules, so it must keep up with them."""

import json

from experiments_lib import recorder, watching

POD = "11111111-1111-1111-1111-111111111111"


def test_the_recorder_sees_progress_and_limits_and_writes_limits(tree, monkeypatch, capsys):
    monkeypatch.setattr(recorder, "CGROUP", str(tree.root))
    monkeypatch.setattr(recorder, "PODS", str(tree.pods))
    tree.pod(POD, quota=50_000)
    (tree.volume(POD) / "progress").write_text("12")
    recorder.main({"pods": {POD: "a"}, "every": 0.01, "seconds": 0.05, "writes": [[0.0, POD, 0.2, 0.1]]})
    out = capsys.readouterr().out
    seen = watching.read(out)["a"]
    assert {done for _, done in seen.units} == {12.0}
    assert [cap for _, *cap in seen.caps] == [[0.2, 0.1]]
    assert [cap for _, *cap in seen.written] == [[0.2, 0.1]]
    assert json.loads(out.splitlines()[0])[0] == "written"
