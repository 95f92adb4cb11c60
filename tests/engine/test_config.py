"""The configuration file: the meaning of its settings, and the errors of an invalid one."""

from __future__ import annotations

import gzip
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from river import base, compose, metrics

from streamkernel import KernelClassifier, KernelRegressor, kernels
from streamkernel.connectors import DatasetSource, FileSource
from streamkernel.engine.config import build, registry
from streamkernel.engine.config.checks import check_storable
from streamkernel.engine.config.config import Config, ConfigError, load_config
from streamkernel.engine.config.streams import kafka_options

WHOLE = """
label  = "class"
ignore = ["id"]
metric = "F1"

[source]
path = "data/events.csv"
format = "csv"
follow = false

[[preprocessing]]
type = "StandardScaler"
on = "numbers"

[[preprocessing]]
type = "OneHotEncoder"

[[preprocessing]]
type = "StandardScaler"
on = ["a"]
with_std = false

[model]
type = "KernelClassifier"
max_features = 2048
kernel = { type = "Gaussian", sigma = "median" }

[sink]
predictions = "out/predictions.jsonl"
dead_letters = "out/dead.jsonl"

[state]
directory = "state"
checkpoint_seconds = 5

[http]
port = 9464
host = "0.0.0.0"
"""

SMALL = """
label = "class"
[source]
path = "events.csv"
[model]
type = "KernelClassifier"
"""

Load = Callable[[str | bytes], Config]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the data that the configurations above name."""
    (tmp_path / "data").mkdir()
    (tmp_path / "numbers.9").touch()
    for name in ("events.csv", "data/events.csv"):
        (tmp_path / name).write_text("id,a,town,class\n1,2.5,Ulm,x\n2,3.5,Bonn,y\n")
    return tmp_path


@pytest.fixture
def load(folder: Path) -> Load:
    def load_text(text: str | bytes) -> Config:
        path = folder / "stream.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_config(path)

    return load_text


def problems(call: Callable[[], Any]) -> list[str]:
    with pytest.raises(ConfigError) as error:
        call()
    return str(error.value).split("\n")


def test_the_whole_file(load: Load, folder: Path) -> None:
    config = load(WHOLE)
    config.check()
    assert (config.label, config.ignore) == ("class", ("id",))
    assert config.source.path == folder / "data/events.csv"
    assert config.sink.predictions == folder / "out/predictions.jsonl"
    assert config.dead_letters_path == folder / "out/dead.jsonl"
    assert (config.state.directory, config.state.checkpoint_seconds) == (folder / "state", 5.0)
    assert (config.http.port, config.http.host) == (9464, "0.0.0.0")
    assert type(config.build_metric()) is metrics.F1
    pipeline = config.build_pipeline()
    assert isinstance(pipeline, compose.Pipeline)
    assert list(pipeline.steps) == ["StandardScaler", "OneHotEncoder", "StandardScaler1", "KernelClassifier"]
    assert [step.on for step in list(pipeline.steps.values())[:3]] == ["numbers", "strings", ["a"]]
    assert pipeline["StandardScaler1"].transformer.with_std is False
    assert pipeline["KernelClassifier"].max_features == 2048
    source = config.build_source()
    assert isinstance(source, FileSource)
    events = source.poll(1.0)
    assert events is not None
    assert events[0].record == {"id": 1, "a": 2.5, "town": "Ulm", "class": "x"}
    source.close()


def test_defaults(load: Load, folder: Path) -> None:
    config = load(SMALL)
    config.check()
    assert type(config.build_pipeline()) is KernelClassifier
    assert type(config.build_metric()) is metrics.Accuracy
    assert (config.ignore, config.sink.predictions, config.state.directory) == ((), None, None)
    assert (config.state.checkpoint_seconds, config.http.port, config.http.host) == (30.0, None, "127.0.0.1")
    assert config.dead_letters_path == folder / "dead_letters.jsonl"
    assert load(SMALL + '[state]\ndirectory = "kept"').dead_letters_path == folder / "kept" / "dead_letters.jsonl"
    regressor = load(SMALL.replace("KernelClassifier", "KernelRegressor"))
    assert type(regressor.build_metric()) is metrics.MAE
    assert type(regressor.build_pipeline()) is KernelRegressor


def test_the_pipeline_learns(load: Load) -> None:
    model = load(WHOLE).build_pipeline()
    assert isinstance(model, base.Classifier)
    for i in range(40):
        model.learn_one({"a": float(i % 2), "town": "Ulm" if i % 2 else "Bonn"}, "x" if i % 2 else "y")
    assert model.predict_one({"a": 1.0, "town": "Ulm"}) == "x"


def test_every_build_is_a_new_object(load: Load) -> None:
    config = load(WHOLE)
    assert config.build_pipeline()[0] is not config.build_pipeline()[0]
    assert config.build_metric() is not config.build_metric()


def test_a_data_set_as_source(load: Load) -> None:
    text = SMALL.replace('path = "events.csv"', 'dataset = "synth.STAGGER"\nparams = { seed = 7 }\nlimit = 2')
    config = load(text)
    config.check()
    source = config.build_source()
    assert isinstance(source, DatasetSource)
    assert [event.record for event in source.poll(1.0) or []] == [
        {"size": 1, "color": 0, "shape": 1, "class": 0},
        {"size": 2, "color": 0, "shape": 0, "class": 0},
    ]


def test_standard_streams_and_absolute_paths_are_unchanged(load: Load, folder: Path) -> None:
    text = SMALL.replace('path = "events.csv"', 'path = "-"\nformat = "jsonl"')
    config = load(text + f'[sink]\npredictions = "-"\ndead_letters = "{folder}/x/../dead.jsonl"')
    assert (str(config.source.path), str(config.sink.predictions)) == ("-", "-")
    assert config.dead_letters_path == folder / "x/../dead.jsonl"


@pytest.mark.parametrize("name", ["plain", "brackets [1]*"])
def test_a_pattern_is_relative_to_a_folder_with_special_characters(folder: Path, name: str) -> None:
    (folder / name).mkdir()
    for file, number in (("a.csv", 1), ("b[1].csv", 2)):
        (folder / name / file).write_text(f"a,class\n{number},x\n")
    for pattern, expected in (("*.csv", [1, 2]), ("a.csv", [1]), ("b[1].csv", [2]), ("[a].csv", [1])):
        path = folder / name / "stream.toml"
        path.write_text(with_source(f'path = "{pattern}"'))
        source = load_config(path).build_source()
        events: list[Any] = []
        while (batch := source.poll(1.0)) is not None:
            events += batch
        assert [event.record["a"] for event in events] == expected
        assert {Path(event.stream).parent for event in events} == {folder / name}
        source.close()


def test_paths_do_not_depend_on_the_working_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "stream.toml").write_text(SMALL)
    monkeypatch.chdir(folder / "data")
    config = load_config(Path("..") / "stream.toml")
    monkeypatch.chdir("/")
    config.check()
    assert config.dead_letters_path.is_absolute()


def test_the_model_and_steps_can_be_names_only(load: Load) -> None:
    config = load('label="y"\nsource.path="events.csv"\nmodel="KernelRegressor"\npreprocessing=["MinMaxScaler"]')
    config.check()
    assert list(config.build_pipeline().steps) == ["MinMaxScaler", "KernelRegressor"]
    assert config.build_pipeline()["MinMaxScaler"].on == "numbers"


def test_a_byte_order_mark_and_windows_lines(load: Load) -> None:
    assert load(b"\xef\xbb\xbf" + SMALL.replace("\n", "\r\n").encode()).label == "class"


def test_it_is_immutable(load: Load) -> None:
    config = load(SMALL)
    with pytest.raises(ValidationError):
        config.label = "other"  # type: ignore[misc]
    with pytest.raises(ValidationError):
        config.source.follow = True  # type: ignore[misc]


def test_the_setup_contains_the_settings_that_a_state_depends_on(load: Load) -> None:
    same = load(WHOLE).setup()
    assert same == load(WHOLE.replace("checkpoint_seconds = 5", "").replace("9464", "1")).setup()
    assert load(SMALL).setup() == load('metric = "Accuracy"\n' + SMALL).setup()
    for old, new in [("2048", "1024"), ('"F1"', '"Accuracy"'), ('"id"', '"it"'), ('on = "numbers"', 'on = "all"')]:
        assert load(WHOLE.replace(old, new)).setup() != same
    assert same["model"]["kernel"] == {"type": "Gaussian", "sigma": "median"}


def with_source(lines: str) -> str:
    return SMALL.replace('path = "events.csv"', lines)


WRONG: dict[str, tuple[str, list[str]]] = {
    "an empty file": (
        "",
        [
            "label: required; expected the name of the field to predict, got nothing",
            "source: required; expected a table with a path, a dataset, http or topics, got nothing",
            'model: required; expected a table with the "type" of the model, got nothing',
        ],
    ),
    "tables that are none": (
        'label = "x"\nsource = 3\nmodel = 4\npreprocessing = 5\nstate = 1\nsink = []\nhttp = true',
        [
            "source: expected a table with a path, a dataset, http or topics, got 3",
            "preprocessing: expected one table [[preprocessing]] per step, got 5",
            "model: expected a model (KernelClassifier, KernelRegressor, GaussianProcessRegressor, "
            "KernelMultiTargetRegressor, KernelMultiLabelClassifier), got 4",
            "sink: expected a table, got []",
            "state: expected a table, got 1",
            "http: expected a table, got true",
        ],
    ),
    "unknown keys": (
        'labl = "x"\n' + SMALL + "[metric]\n[stat]\n[state]\ncheckpoint = 3\n",
        [
            "metric.type: expected the name of a River metric, got nothing",
            'state.checkpoint: unknown key; did you mean "checkpoint_seconds"?',
            'labl: unknown key; did you mean "label"?',
            'stat: unknown key; did you mean "state"?',
        ],
    ),
    "a key without a neighbour": (
        SMALL + "[sink]\nx = 1",
        [
            "sink.x: unknown key; expected one of predictions, dead_letters, predictions_topic, predictions_format, "
            "dead_letters_topic, explain"
        ],
    ),
    "a key under the wrong table": (
        SMALL.replace('label = "class"', "") + '[state]\nlabel = "class"',
        [
            "label: required; expected the name of the field to predict, got nothing",
            'state.label: unknown key; "label" belongs above the first [table]',
        ],
    ),
    "a key in the source table": (
        with_source('path = "events.csv"\nignore = ["id"]'),
        ['source.ignore: unknown key; "ignore" belongs above the first [table]'],
    ),
    "a label that is no name": (
        SMALL.replace('"class"', "2020-01-01"),
        ["label: expected the name of the field to predict, got 2020-01-01"],
    ),
    "an empty label": (
        SMALL.replace('"class"', '""'),
        ['label: expected the name of the field to predict, got ""'],
    ),
    "ignore as a string": ('ignore = "id"\n' + SMALL, ['ignore: expected a list of field names, got "id"']),
    "ignore with a number": (
        'ignore = ["id", 3, ""]\n' + SMALL,
        ['ignore: expected a list of field names, got ["id", 3, ""]'],
    ),
    "the label ignored": (
        'ignore = ["class"]\n' + SMALL,
        ['ignore: expected fields other than the label, got "class"'],
    ),
    "two sources": (
        with_source('path = "events.csv"\ndataset = "Phishing"'),
        ["source: expected a path, a dataset, http or topics, got path and dataset"],
    ),
    "no source": (
        with_source("follow = true"),
        ["source: expected a path, a dataset, http or topics, got none of them"],
    ),
    "keys of the other source": (
        with_source('path = "events.csv"\nlimit = 3\nparams = {}'),
        ["source.params: only goes with a dataset", "source.limit: only goes with a dataset"],
    ),
    "follow a data set": (
        with_source('dataset = "Phishing"\nfollow = false\nformat = "csv"'),
        ["source.format: only goes with a path or topics", "source.follow: only goes with a path"],
    ),
    "wrong values in the source": (
        with_source('path = 3\nformat = "cvs"\nfollow = "no"\nlimit = 0\nparams = 1'),
        [
            'source.path: expected the path of a file, or "-" for standard input, got 3',
            'source.format: expected "csv", "jsonl", "parquet" or "svmlight" of a file, "json", "csv", "avro", '
            '"protobuf" or "json-schema" of topics, got "cvs"',
            'source.follow: expected true or false, got "no"',
            "source.params: expected a table with the parameters of the data set, got 1",
            "source.limit: expected an integer of at least 1, got 0",
        ],
    ),
    "an empty path": (
        with_source('path = ""'),
        ['source.path: expected the path of a file, or "-" for standard input, got ""'],
    ),
    "standard input without a format": (
        with_source('path = "-"'),
        ['source.format: required for standard input; expected "csv", "jsonl" or "svmlight", got nothing'],
    ),
    "numbers out of range": (
        SMALL + "[state]\ncheckpoint_seconds = 0\n[http]\nport = 65536\nhost = 1",
        [
            "state.checkpoint_seconds: expected a number of seconds above 0, got 0",
            "http.port: expected a port from 0 to 65535, got 65536",
            "http.host: expected the name or address of a host, got 1",
        ],
    ),
    "no baseline": (
        SMALL.replace("[source]", 'baseline = "LogisticRegresion"\n[source]', 1),
        ['baseline: expected a linear model of River, got "LogisticRegresion"; did you mean "LogisticRegression"?'],
    ),
    "a secret": (
        SMALL + '[http]\ntoken = "s3cret"',
        ["http.token: expected text of 8 or more printable ASCII characters, got another"],
    ),
    "numbers that are none": (
        SMALL + '[state]\ncheckpoint_seconds = inf\ndirectory = false\n[http]\nport = "9464"',
        [
            "state.directory: expected the path of a directory, got false",
            "state.checkpoint_seconds: expected a number of seconds above 0, got inf",
            'http.port: expected a port from 0 to 65535, got "9464"',
        ],
    ),
    "true as a number": (
        SMALL + "[state]\ncheckpoint_seconds = true\n[http]\nport = 9464.0",
        [
            "state.checkpoint_seconds: expected a number of seconds above 0, got true",
            "http.port: expected a port from 0 to 65535, got 9464.0",
        ],
    ),
    "the source overwritten": (
        SMALL + '[sink]\npredictions = "events.csv"\ndead_letters = "events.csv"',
        [
            "sink.predictions: expected a file that is not used otherwise, got the file of source.path",
            "sink.dead_letters: expected a file that is not used otherwise, got the file of sink.predictions",
        ],
    ),
    "the source's pattern overwritten": (
        with_source('path = "**/*.jsonl"') + '[sink]\npredictions = "a/[b]/out.jsonl"',
        [
            "sink.predictions: expected a file that source.path does not match, got {folder}/a/[b]/out.jsonl",
            "sink.dead_letters: expected a file that source.path does not match, got {folder}/dead_letters.jsonl",
        ],
    ),
    "the dead letters among the predictions": (
        SMALL + '[sink]\npredictions = "dead_letters.jsonl"',
        ["sink.dead_letters: expected a file that is not used otherwise, got the file of sink.predictions"],
    ),
    "one preprocessing table": (
        SMALL + '[preprocessing]\ntype = "StandardScaler"',
        ['preprocessing: expected one table [[preprocessing]] per step, got {type = "StandardScaler"}'],
    ),
    "wrong steps": (
        SMALL
        + '[[preprocessing]]\ntype = "StandardScaler"\n'
        + '[[preprocessing]]\ntype = "StandardScalr"\n'
        + "[[preprocessing]]\nwith_std = false\n"
        + '[[preprocessing]]\ntype = "MinMaxScaler"\non = "number"\nwindow_size = "5"\n',
        [
            'preprocessing[1].type: expected a River transformer, got "StandardScalr"; did you mean "StandardScaler"?',
            "preprocessing[2].type: expected the name of a River transformer, got nothing",
            'preprocessing[3].on: expected "numbers", "strings", "all" or a list of field names, got "number"; '
            'did you mean "numbers"?',
            'preprocessing[3].window_size: expected an integer, got "5"',
        ],
    ),
    "keys of challengers": (
        SMALL + '[[challengers]]\nname = "b c"\nmodell = "KernelClassifier"\n[[challengers]]\nfrom = 3',
        [
            'challengers[0].modell: unknown key; did you mean "model"?',
            'challengers[0].name: expected a name of at most 64 letters, digits and . _ -, got "b c"',
            "challengers[1].from: expected the path of a saved model or a state directory, got 3",
            "challengers[1].name: required; expected a name of at most 64 letters, digits and . _ -, got nothing",
        ],
    ),
    "challengers": (
        SMALL
        + '[[challengers]]\nname = "model"\nmodel = "KernelClassifer"\n'
        + '[[challengers]]\nname = "a"\n[[challengers]]\nname = "a"\npreprocessing = ["StandardScalr"]\nfrom = "x"',
        [
            'challengers[0].name: expected another name than "model", which the table [model] has',
            "challengers[0].model: expected a model (KernelClassifier, KernelRegressor, GaussianProcessRegressor, "
            'KernelMultiTargetRegressor, KernelMultiLabelClassifier), got "KernelClassifer"; did you mean '
            '"KernelClassifier"?',
            "challengers[1]: expected a model or from, got neither",
            'challengers[2].name: expected different names, got "a" twice',
            "challengers[2].preprocessing: expected none with from, whose model has its own, got some",
            'challengers[2].preprocessing[0]: expected a River transformer, got "StandardScalr"; did you mean '
            '"StandardScaler"?',
        ],
    ),
    "a wrong model and more": (
        'metric = "Accurcy"\n'
        + SMALL
        + 'max_feature = 3\nseed = 07:32:00\n[model.kernel]\ntype = "Gaussian"\nsigm = 3',
        [
            'metric: expected a River metric, got "Accurcy"; did you mean "Accuracy"?',
            'model.max_feature: unknown key; did you mean "max_features"?',
            'model.kernel.sigm: unknown key; did you mean "sigma"?',
            "model.seed: expected an integer, got 07:32:00",
        ],
    ),
}


@pytest.mark.parametrize(("text", "lines"), WRONG.values(), ids=WRONG.keys())
def test_all_problems_are_reported_in_one_style(load: Load, folder: Path, text: str, lines: list[str]) -> None:
    lines = [line.replace("{folder}", str(folder)) for line in lines]
    assert sorted(problems(lambda: load(text))) == sorted(lines)


TOPICS = """
label = "class"
[kafka]
servers = "localhost:9092"
group = "g"
[source]
topics = ["clicks"]
[model]
type = "KernelClassifier"
[state]
directory = "state"
"""
CONFLUENT = TOPICS.replace('group = "g"', 'group = "g"\nclient = "confluent-kafka"')
KAFKA_WRONG = {
    "no servers": (
        TOPICS.replace("servers", "server"),
        [
            'kafka.server: unknown key; did you mean "servers"?',
            'kafka.servers: required; expected addresses of brokers, "host:port", separated by commas, got nothing',
        ],
    ),
    "no table": (
        TOPICS.replace('[kafka]\nservers = "localhost:9092"\ngroup = "g"\n', ""),
        ["kafka: required for source.topics; expected a table, got nothing"],
    ),
    "no topics": (
        TOPICS.replace('topics = ["clicks"]', 'path = "events.csv"').replace(
            'group = "g"', 'processing_guarantee = "at_least_once"'
        ),
        ["kafka: expected topics in source or sink, got none"],
    ),
    "no state": (
        TOPICS.replace('[state]\ndirectory = "state"', ""),
        ["state.directory: required to learn each event exactly once; expected a directory, got nothing"],
    ),
    "a file, and predictions to a topic": (
        TOPICS.replace('topics = ["clicks"]', 'path = "events.csv"') + '[sink]\npredictions_topic = "p"',
        ['kafka.processing_guarantee: expected "at_least_once", because the source is not a topic, got "exactly_once"'],
    ),
    "too long between checkpoints": (
        TOPICS + "checkpoint_seconds = 500.0",
        ["state.checkpoint_seconds: expected at most 450, since a transaction is open for so long, got 500"],
    ),
    "both for predictions": (
        TOPICS + '[sink]\npredictions = "p.jsonl"\npredictions_topic = "p"',
        ["sink.predictions: expected a path or a topic, got both"],
    ),
    "a key of files": (
        TOPICS.replace("[model]", "follow = true\n[model]"),
        ["source.follow: only goes with a path"],
    ),
    "a key of topics": (SMALL.replace("[model]", 'start = "latest"\n[model]'), ["source.start: only goes with topics"]),
    "no processing guarantee that we know": (
        TOPICS.replace('group = "g"', 'processing_guarantee = "twice"'),
        ['kafka.processing_guarantee: expected "exactly_once" or "at_least_once", got "twice"'],
    ),
    "no client that we know": (
        TOPICS.replace('group = "g"', 'client = "confluent"'),
        ['kafka.client: expected "kafka-python" or "confluent-kafka", got "confluent"'],
    ),
}


@pytest.mark.parametrize(("text", "lines"), KAFKA_WRONG.values(), ids=KAFKA_WRONG)
def test_problems_with_kafka(load: Load, text: str, lines: list[str]) -> None:
    assert sorted(problems(lambda: load(text))) == sorted(lines)


UNPASSED = "expected an option that is passed through, got"
OPTIONS_WRONG = [
    (
        TOPICS,
        'sasl_mechanim = "PLAIN"',
        'expected an option of kafka-python, got "sasl_mechanim" - did you mean "sasl_mechanism"?',
    ),
    (TOPICS, 'group_id = "g"', f'{UNPASSED} "group_id" - "group" decides it'),
    (TOPICS, "transaction_timeout_ms = 5", f'{UNPASSED} "transaction_timeout_ms" - "checkpoint_seconds" decides it'),
    (
        CONFLUENT,
        '"sasl.mechanim" = "PLAIN"',
        'expected an option of librdkafka, got "sasl.mechanim": No such configuration property: "sasl.mechanim"',
    ),
    (
        CONFLUENT,
        '"security.protocol" = "SASL"',
        'expected an option of librdkafka, got "security.protocol": Invalid value "SASL" for configuration property '
        '"security.protocol"',
    ),
    (
        CONFLUENT,
        'stats_cb = "x"',
        'expected an option of librdkafka, got "stats_cb": expected stats_cb property as a callable function',
    ),
    (
        TOPICS,
        'partition_assignment_strategy = "cooperative-sticky"',
        f'{UNPASSED} "partition_assignment_strategy" - it needs client = "confluent-kafka"',
    ),
    (TOPICS, 'group_protocol = "consumer"', f'{UNPASSED} "group_protocol" - it needs client = "confluent-kafka"'),
    (CONFLUENT, '"bootstrap.servers" = "b"', f'{UNPASSED} "bootstrap.servers" - "servers" decides it'),
    (CONFLUENT, '"transactional.id" = "b"', f'{UNPASSED} "transactional.id" - "processing_guarantee" decides it'),
]


@pytest.mark.parametrize(("text", "option", "line"), OPTIONS_WRONG)
def test_options_of_clients_are_checked(load: Load, text: str, option: str, line: str) -> None:
    load(text).check()
    config = load(text.replace("[source]", f"[kafka.options]\n{option}\n[source]"))
    assert problems(config.check) == [f"kafka.options: {line}"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            TOPICS.replace("[model]", 'start = "lates"\n[model]'),
            'source: expected "earliest", "latest", an offset or a time with its zone, got \'lates\'',
        ),
        (
            TOPICS.replace("[model]", 'decoder = "json:no_such"\n[model]'),
            'source.decoder: expected a function, "package.module:name", got "json:no_such": '
            "module 'json' has no attribute 'no_such'",
        ),
        (
            TOPICS.replace("[model]", 'decoder = "json:__name__"\n[model]'),
            'source.decoder: expected a function, got str at "json:__name__"',
        ),
    ],
)
def test_a_check_of_kafka_needs_no_broker(load: Load, text: str, line: str) -> None:
    load(TOPICS).check()
    assert problems(lambda: load(text).check()) == [line]


def test_a_decoder_is_found_in_the_folder_of_the_configuration(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    config = load(TOPICS.replace("[model]", 'decoder = "decoder_of_this_test:decode"\n[model]'))
    (config.folder / "decoder_of_this_test.py").write_text("def decode(value, topic):\n    return {topic: value}\n")
    config.check()
    assert sys.path[-1] == str(config.folder)  # so that it hides no installed module


def test_secrets_come_from_the_environment_and_are_not_shown(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMKERNEL_KAFKA_SASL_PLAIN_PASSWORD", "s3cret")
    monkeypatch.setenv("STREAMKERNEL_KAFKA_REQUEST_TIMEOUT_MS", "4000")
    options = kafka_options(load(TOPICS))
    assert options.given["sasl_plain_password"] == "s3cret"
    assert options.given["request_timeout_ms"] == 4000
    assert "s3cret" not in repr(options)


def test_variables_of_the_environment_have_dots_for_confluent(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    secure = '[kafka.options]\n"security.protocol" = "SASL_SSL"\n"sasl.mechanism" = "SCRAM-SHA-512"\n[source]'
    monkeypatch.setenv("STREAMKERNEL_KAFKA_SASL_USERNAME", "me")
    monkeypatch.setenv("STREAMKERNEL_KAFKA_SASL_PASSWORD", "s3cret")
    config = load(CONFLUENT.replace("[source]", secure))
    config.check()
    options = kafka_options(config)
    assert options.given["sasl.password"] == "s3cret"
    assert "s3cret" not in repr(options)
    monkeypatch.setenv("STREAMKERNEL_KAFKA_SASL_PASSWRD", "s3cret")
    told = problems(config.check)
    assert len(told) == 1
    assert "sasl.passwrd" in told[0]
    assert "s3cret" not in told[0]


def test_a_missing_client_package(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    for name in [name for name in sys.modules if name.startswith("streamkernel.connectors.kafka.confluent.")]:
        monkeypatch.delitem(sys.modules, name)
    assert problems(load(CONFLUENT).check) == [
        "kafka.client: confluent-kafka is needed: pip install 'streamkernel[confluent]'"
    ]


def test_errors_do_not_mention_pydantic(load: Load) -> None:
    """Every leaf of the file is replaced by every kind of value; no error has the wording of pydantic."""
    values = ["3", "-1", "0.5", "true", '"x"', '""', "[]", "[1]", "{}", "{ a = 1 }", "nan", "1979-05-27", "07:32:00"]
    ours = re.compile(r"[a-z_.\[\]0-9]+: .*(expected|unknown key|only goes with|need).*")
    jargon = re.compile(
        r"pydantic|Input should|Extra inputs|Value error|type=|https?://|valid (string|integer)|NoneType"
    )
    told = []
    for line in WHOLE.splitlines():
        key, equals, _ = line.partition("=")
        for value in values if equals else []:
            try:
                load(WHOLE.replace(line, f"{key}= {value}"))
            except ConfigError as error:
                told.append(str(error))
    assert len(told) > 150
    assert [text for text in told if jargon.search(text)] == []
    assert [line for text in told for line in text.split("\n") if not ours.fullmatch(line)] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label = ", "line 1, column 9: invalid value"),
        ("label = 'x'\n[source", "line 2, column 8: expected ']' at the end of a table declaration"),
        ('label = """x\ny', "line 2, column 2: unterminated string"),
        ("a = 1\na = 2", "line 2, column 6: cannot overwrite a value"),
        ("label = 'é'\n = 3", "line 2, column 2: invalid statement"),
        (b"label = 'x'\nignore = ['\xff']", "line 2: expected UTF-8 text, got 0xff"),
    ],
)
def test_toml_syntax_errors(load: Load, folder: Path, text: str | bytes, message: str) -> None:
    assert problems(lambda: load(text)) == [f"{folder / 'stream.toml'}, {message}"]


def test_unreadable_files(folder: Path) -> None:
    assert problems(lambda: load_config(folder / "no.toml")) == [f"{folder / 'no.toml'}: no such file or directory"]
    assert problems(lambda: load_config(str(folder))) == [f"{folder}: is a directory"]
    assert problems(lambda: load_config("/dev/zero")) == ["/dev/zero: file too large"]  # it does not end


CHECKED: dict[str, tuple[str, list[str]]] = {
    "a metric for numbers": (
        'metric = "R2"\n' + SMALL,
        ['metric: expected a metric for a classifier, which KernelClassifier is, got "R2"'],
    ),
    "a metric for classes": (
        'metric = { type = "ROCAUC" }\n' + SMALL.replace("KernelClassifier", "KernelRegressor"),
        ['metric: expected a metric for a regressor, which KernelRegressor is, got "ROCAUC"'],
    ),
    "no file": (with_source('path = "event.csv"'), ["source.path: no such file or directory: {folder}/event.csv"]),
    "no match": (
        with_source('path = "*/2026-*.csv"'),
        ["source.path: expected files that match, found none: {folder}/*/2026-*.csv"],
    ),
    "a match without a format": (
        with_source('path = "numbers.*"'),
        [
            "source.path: expected a file name that ends in .csv, .tsv, .jsonl, .ndjson, .svmlight, .svm, .libsvm, "
            '.parquet, got ".9"'
        ],
    ),
    "a folder": (with_source('path = "data"'), ["source.path: is a directory: {folder}/data"]),
    "a suffix": (
        with_source('path = "numbers.9"'),
        [
            "source.path: expected a file name that ends in .csv, .tsv, .jsonl, .ndjson, .svmlight, .svm, .libsvm, "
            '.parquet, got ".9"'
        ],
    ),
    "no data set": (
        with_source('dataset = "Phishng"'),
        ['source.dataset: expected one of River\'s data sets, got "Phishng"; did you mean "Phishing"?'],
    ),
    "parameters of a data set": (
        with_source('dataset = "synth.Friedman"\nparams = { sed = 1, seed = "1" }'),
        [
            'source.params.sed: unknown key; did you mean "seed"?',
            'source.params.seed: expected an integer, got "1"',
        ],
    ),
    "challengers of another kind": (
        SMALL + '[[challengers]]\nname = "a"\nmodel = "KernelRegressor"\n'
        '[[challengers]]\nname = "b"\nfrom = "nothing.safetensors"\n'
        '[[challengers]]\nname = "c"\nmodel = "KernelClassifier"\n'
        'preprocessing = [{ type = "OneHotEncoder" }, { type = "LastTarget" }]\n'
        '[delayed_labels]\nkey = "id"',
        [
            "challengers[0].model: expected a model of the same kind as KernelClassifier, got KernelRegressor",
            "challengers[1].from: expected a model file, found none - at {folder}/nothing.safetensors",
            "challengers[2].preprocessing[1]: expected LastTarget before other steps but Calendar, where labels come "
            "later, got one after them",
        ],
    ),
    "several": (
        'metric = "MAE"\n' + with_source('dataset = "Bananass"'),
        [
            'metric: expected a metric for a classifier, which KernelClassifier is, got "MAE"',
            'source.dataset: expected one of River\'s data sets, got "Bananass"; did you mean "Bananas"?',
        ],
    ),
}


@pytest.mark.parametrize(("text", "lines"), CHECKED.values(), ids=CHECKED.keys())
def test_check_finds_problems_beyond_the_file(load: Load, folder: Path, text: str, lines: list[str]) -> None:
    config = load(text)
    assert problems(config.check) == [line.replace("{folder}", str(folder)) for line in lines]


def test_check_leaves_nothing_open_or_written(load: Load, folder: Path) -> None:
    config = load(WHOLE)

    def found() -> tuple[int, list[Path]]:
        return len(list(Path("/proc/self/fd").iterdir())), sorted(folder.rglob("*"))

    before = found()
    config.check()
    assert found() == before


class Opaque(base.Transformer):
    """A step with an attribute that cannot be stored."""

    def __init__(self) -> None:
        self.call = print

    def transform_one(self, x: dict[Any, Any]) -> dict[Any, Any]:
        return x


def test_a_step_that_cannot_be_stored_is_named(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.transformers().classes, "Opaque", Opaque)  # type: ignore[arg-type]
    steps = """
        preprocessing = ["StandardScaler", {type = "Opaque", on = "all"}, "Opaque"]
        metric = "R2"
    """
    why = "Opaque cannot be stored in a checkpoint: at {}: cannot store a test_config.Opaque"
    assert problems(load(steps + SMALL).check) == [
        'metric: expected a metric for a classifier, which KernelClassifier is, got "R2"',
        "preprocessing[1]: " + why.format("the top"),
        "preprocessing[2]: " + why.format("transformer"),
    ]


def test_every_transformer_and_metric_can_be_checked() -> None:
    """A checkpoint can store every class of the registries."""
    for name, kind in registry.transformers().classes.items():
        needed = {"RandomFeatures": (kernels.Gaussian(),), "Lags": (["a"],), "Calendar": ("at",)}.get(name, ())
        step = kind(*needed)
        check_storable(name, build.transformer_on(step))
    for name in registry.metrics().classes:
        table = {"type": name, **({"beta": 2} if name.endswith("FBeta") and name != "MultiFBeta" else {})}
        if name == "MultiFBeta":
            table |= {"betas": {"a": 1.0}, "weights": {"a": 1.0}}
        check_storable(name, build.build(table, registry.metrics(), "metric"))


def test_a_token_comes_from_the_file_or_the_environment_and_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMKERNEL_HTTP_TOKEN", "of the environment")
    base = {"label": "y", "source": {"dataset": "Phishing"}, "model": "KernelClassifier"}
    found = Config.model_validate(base)
    assert found.http.token is not None
    assert found.http.token.get_secret_value() == "of the environment"
    other = Config.model_validate(base | {"http": {"token": "of the file"}})
    assert other.http.token is not None
    assert other.http.token.get_secret_value() == "of the file"
    assert "of the" not in repr(found) + repr(other)
    for token in ("s3cret", "of a file\n", "of the wörld"):
        monkeypatch.setenv("STREAMKERNEL_HTTP_TOKEN", token)
        with pytest.raises(ConfigError, match="STREAMKERNEL_HTTP_TOKEN: expected text of 8 or more") as raised:
            Config.model_validate(base)
        assert token.strip() not in str(raised.value)


def test_a_baseline_reads_the_same_inputs_as_the_model() -> None:
    table = {"label": "y", "source": {"dataset": "Phishing"}, "preprocessing": [{"type": "StandardScaler"}]}
    found = Config.model_validate(table | {"model": "KernelClassifier", "baseline": "LogisticRegression"})
    found.check()
    baseline = found.build_baseline()
    for i in range(4000):
        baseline.learn_one({"a": i % 5, "town": "xyz"[i % 3]}, ["yes", "no", "perhaps"][i % 3])
    assert [baseline.predict_one({"a": 1, "town": town}) for town in "xyz"] == ["yes", "no", "perhaps"]
    assert found.setup()["baseline"] == "LogisticRegression"
    other = Config.model_validate(table | {"model": "KernelClassifier", "baseline": "LinearRegression"})
    assert problems(other.check) == ['baseline: expected a classifier like the model, got "LinearRegression"']


RECORDS: dict[str, bytes] = {
    "a.csv": b"a,b,class\n1,2,\n",
    "a.jsonl": b'{"a": 1}\n{"class": 2}\n',
    "a.svm": b"1 1:2\n",
    "a.csv.gz": gzip.compress(b"a,b,class\n"),
}


@pytest.mark.parametrize("name", RECORDS)
def test_the_label_is_looked_for_in_the_records_of_files(load: Load, folder: Path, name: str) -> None:
    (folder / name).write_bytes(RECORDS[name])
    text = f'label = "{{}}"\n[source]\npath = "{name}"\n[model]\ntype = "KernelClassifier"\n'
    label = "label" if name == "a.svm" else "class"
    load(text.format(label)).check_records()
    (line,) = problems(lambda: load(text.format("klass")).check_records())
    assert line.startswith('label: expected a field of the records, got "klass"')
    assert name in line
    assert f'"{label}"' in line
    load(text.format("klass") + '[delayed_labels]\nkey = "b"\n').check_records()


def test_the_label_is_looked_for_in_several_files_and_columns_of_parquet(load: Load, folder: Path) -> None:
    (folder / "a.csv").write_text("about,this\n1,2\n")
    (folder / "b.csv").write_text(",".join(f"c{i}" for i in range(30)) + ",class\n")
    text = 'label = "{}"\n[source]\npath = "[ab].csv"\n[model]\ntype = "KernelClassifier"\n'
    load(text.format("class")).check_records()
    (line,) = problems(lambda: load(text.format("y")).check_records())
    assert line.endswith('"c17" and 13 more')
    pq.write_table(pa.table({"class": pa.array([None], pa.int64())}), folder / "c.parquet")
    load(text.format("class").replace("[ab].csv", "c.parquet")).check_records()
    (folder / "b.csv").write_text("c,c\n")
    (line,) = problems(lambda: load(text.format("class").replace("[ab]", "b")).check_records())
    assert line.startswith("source.path: expected distinct names of columns")
