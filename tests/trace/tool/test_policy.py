"""Policies from YAML: defaults, thresholds from past updates and calibrations, one sentence per mistake."""

from pathlib import Path

import pytest

from trace.gate.policy import DEFAULT_RULES, Policy, Rule
from trace.io.errors import UserError
from trace.io.writing import strict_json
from trace.stats.conformal import calibrate_threshold
from trace.tool.policy import StoredCalibration, calibration_record, load_policy, read_past

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def write(tmp_path):
    def file(name, text):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return file


def past_csv(num_harmful=12, num_safe=8):
    harmful = [f"h{i},{0.5 + i / 100},0.1" for i in range(num_harmful)]
    safe = [f"s{i},{0.3 + i / 20},-0.01" for i in range(num_safe)]
    return "\n".join(["name,score,risk_change", *harmful, *safe]) + "\n"


def test_one_line_is_a_policy(write):
    loaded = load_policy(write("policy.yaml", "threshold: 0.05\n"))
    assert loaded.policy == Policy(0.05)
    assert (loaded.policy.score, loaded.policy.confidence) == ("anchor_disagreement", 0.95)
    assert loaded.past == ()


def test_every_key_counts(write):
    text = "score: trace_w\nthreshold: 3\nconfidence: 0.9\nmin_source: 7\nmin_target: 8\nanchors: [a, b]\n"
    assert load_policy(write("p.yaml", text)).policy == Policy(3.0, "trace_w", 0.9, 7, 8, ("a", "b"))


def test_rules_are_read(write):
    text = """
labels: decide
looks: 2
rules:
  - {score: error_change, limit: 0.02, unlabelled: anchor_disagreement}
  - score: trace_w
    limit: 5
    anchor: photos
    role: advisory
"""
    assert load_policy(write("p.yaml", text)).policy == Policy(
        rules=(
            Rule("error_change", 0.02, unlabelled="anchor_disagreement"),
            Rule("trace_w", 5.0, anchor="photos", required=False),
        ),
        labels="decide",
        looks=2,
    )


def test_a_policy_without_a_limit_has_the_default_rules(write):
    policy = load_policy(write("p.yaml", "confidence: 0.9\n")).policy
    assert policy == Policy(confidence=0.9)
    assert policy.all_rules == DEFAULT_RULES


def test_the_example_is_a_policy():
    assert load_policy(str(ROOT / "configs" / "policy" / "example.yaml")).policy == Policy(0.05)


def test_the_alternatives_in_the_example_are_policies(write, tmp_path):
    text = (ROOT / "configs" / "policy" / "example.yaml").read_text()
    write("past.csv", past_csv())
    keys = ("past", "harm_above", "max_harmful_accepted", "guarantee")
    for key in keys:
        assert f"\n# {key}: " in text
        text = text.replace(f"\n# {key}: ", f"\n{key}: ")
    loaded = load_policy(write("p.yaml", text.replace("\nthreshold: ", "\n# threshold: ")))
    expected = calibrate_threshold(loaded.past, harm_above=0.02, max_harmful_accepted=0.1)
    assert loaded.policy.threshold == expected.threshold
    assert loaded.policy.promise == expected.in_words()
    assert len(loaded.past) == 20
    assert loaded.harm_above == 0.02


def test_calibrations_are_read_back(write, tmp_path):
    past = read_past(Path(write("past.csv", past_csv())))
    found = calibrate_threshold(past, max_harmful_accepted=0.2, guarantee="joint")
    stored = StoredCalibration(found, "anchor_disagreement", tuple(past))
    write("c.json", strict_json(calibration_record(stored)))
    loaded = load_policy(write("p.yaml", "calibration: c.json\n"))
    assert (loaded.policy.threshold, loaded.policy.promise) == (found.threshold, found.in_words())
    assert loaded.past == tuple(past)
    with pytest.raises(UserError, match="is about trace_w, but its calibration about anchor_disagreement"):
        load_policy(write("p.yaml", "calibration: c.json\nscore: trace_w\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("treshold: 0.1", "has the unknown key 'treshold': did you mean threshold?"),
        ("threshold: 5", "threshold 5 for anchor_disagreement, a share, must lie strictly between 0 and 1: write 0.05"),
        ("threshold: -1\nscore: trace_w", "threshold -1 for trace_w, which is never negative, would reject everything"),
        ("threshold: 0.1\nlabels: deside", "labels 'deside' is not known: did you mean decide?"),
        ("threshold: 0.1\nlooks: 0", "looks must be a whole number"),
        ("threshold: 0.1\nrules: []", "has threshold and rules: give one of threshold, past"),
        ("rules: 3", "rules must be a list such as"),
        ("rules: [3]", "rule 1 needs a score and a limit, such as {score: error_change, limit: 0.02}"),
        ("rules: [{score: trace_w}]", "rule 1 needs a score and a limit"),
        ("rules: [{score: trace_w, limit: 1, rôle: x}]", "rule 1 has the unknown key 'rôle': did you mean role?"),
        ("rules: [{score: trace_w, limit: many}]", "rule 1: limit must be a number such as 0.05, got 'many'"),
        (
            "rules: [{score: trace_w, limit: 1, role: advisary}]",
            "rule 1: role 'advisary' is not known: did you mean adv",
        ),
        ("rules: [{score: tracew, limit: 1}]", "rule 1: score 'tracew' is not known"),
        ("rules: [{score: recall_drop, limit: 2}]", "rule 1: threshold 2 for recall_drop, a share, must lie strictly"),
        ("rules: [{score: trace_w, limit: 1, role: advisory}]", "no rule is required, so nothing would decide"),
        ("threshold: 0.1\nxyz: 1", "has the unknown key 'xyz': known are threshold,"),
        ("threshold: 1:30", "threshold must be a number such as 0.05, got '1:30'"),
        ("threshold: 010", "threshold must be a number such as 0.05, got '010'"),
        ("a: &a 1\nthreshold: *a", "has an anchor or alias .*: write the value where it is needed"),
        ("threshold: true", "threshold must be a number"),
        ("threshold: 0.1\nmin_source: 1.5", "min_source must be a whole number, got 1.5"),
        ("threshold: 0.1\nscore: 3", "score must be text, got 3"),
        ("threshold: 0.1\nscore: anchor_disagreements", "is not known: did you mean anchor_disagreement?"),
        ("threshold: 0.1\nscore: zzz", "score 'zzz' is not known: use one of anchor_disagreement"),
        ("threshold: 0.1\nconfidence: 1.5", "confidence must lie strictly between 0 and 1"),
        ("threshold: 0.1\nanchors: photos", "anchors must be a list of names"),
        ("score: trace_w", "has no threshold: give one of threshold, past"),
        ("threshold: 0.1\npast: past.csv", "has threshold and past: give one of"),
        ("threshold: 0.1\nharm_above: 0.1", "has harm_above, which only past uses"),
        ("past: past.csv", "has past but no max_harmful_accepted"),
        ("past: absent.csv\nmax_harmful_accepted: 0.1", "absent.csv does not exist: check the path"),
        ("past: past.csv\nmax_harmful_accepted: 0.01", "12 of 20 past updates were.* needs at least 99 harmful"),
        ("past: past.csv\nmax_harmful_accepted: 0.1\nguarantee: jiont", "did you mean joint?"),
        ("calibration: past.csv", "past.csv is not JSON"),
        ("calibration: other.json", "is not of the format trace-calibration/1: make it with calibrate --out"),
        ("calibration: short.json", "is not complete .*: make it again with calibrate --out"),
        ("- 1\n- 2", "holds no keys: give it at least a threshold"),
        ("threshold: [", "is not YAML .*: write one `key: value` a line"),
        ("threshold: !!python/object/apply:os.getcwd []", "has a tag .*: write plain values"),
        ("threshold: .nan", "threshold must be a number such as 0.05, got '.nan'"),
        ("threshold: 1e999", "threshold must be a finite number"),
        ("threshold: 0.1\nthreshold: 0.2", "has the key 'threshold' twice: keep one of them"),
        ("calibration: odd.json", "odd.json is not complete .*: make it again with calibrate --out"),
        ("calibration: .", "is a folder: name a file"),
    ],
)
def test_mistakes_get_one_sentence(write, tmp_path, text, message):
    write("past.csv", past_csv())
    write("other.json", "{}")
    write("short.json", '{"format": "trace-calibration/1", "threshold": 1.0}')
    found = calibrate_threshold(read_past(Path(write("past.csv", past_csv()))))
    record = calibration_record(StoredCalibration(found, "", ()))
    write("odd.json", strict_json({**record, "guarantee": "some"}))
    with pytest.raises(ValueError, match=message) as caught:
        load_policy(write("policy.yaml", text))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path))  # the file at fault


def test_past_updates_from_either_format(write):
    csv = read_past(Path(write("past.csv", "risk_change,when,name,score\n0.5,monday,a,1e-3\n-1,tuesday,b,2\n")))
    lines = (
        '{"name": "a", "score": 0.001, "risk_change": 0.5, "when": 1}\n\n{"name": "b", "score": 2, "risk_change": -1}\n'
    )
    assert csv == read_past(Path(write("past.jsonl", lines)))
    assert [(u.name, u.score, u.risk_change) for u in csv] == [("a", 0.001, 0.5), ("b", 2.0, -1.0)]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.csv", "name,score\na,1\n", "has no column risk_change: its header needs name, score, risk_change"),
        ("p.csv", "", "has no column name, score, risk_change"),
        ("p.csv", "name,score,risk_change\n", "holds no past update"),
        ("p.csv", "name,score,risk_change\na,1,2\nb,,2\n", "p.csv, line 3: score is '', not a number"),
        ("p.csv", "name,score,risk_change\na,1\n", "p.csv, line 2: risk_change is None, not a number"),
        ("p.jsonl", '{"name": "a", "score": 1}\n', "p.jsonl, line 1, has no risk_change"),
        ("p.jsonl", '{"name": "a", "score": true, "risk_change": 1}\n', "score is True, not a number"),
        ("p.jsonl", "[1]\n", "has no name, score, risk_change"),
        ("p.jsonl", "{\n", "p.jsonl, line 1, is not JSON"),
    ],
)
def test_bad_past_files(write, name, text, message):
    with pytest.raises(UserError, match=message):
        read_past(Path(write(name, text)))


def test_files_that_are_no_text(tmp_path):
    (tmp_path / "p.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="is not text in UTF-8"):
        read_past(tmp_path / "p.csv")


def test_numbers_are_those_of_yaml_1_2(write):
    """YAML 1.1 reads 1e-2 as text."""
    for text, value in (("1e-2", 0.01), (".5", 0.5), ("0.25", 0.25), ("3", 3.0), ("-1", -1.0)):
        assert (
            load_policy(write("policy.yaml", f"score: anchor_plug_in\nthreshold: {text}\n")).policy.threshold == value
        )
