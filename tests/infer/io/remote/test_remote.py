"""Scans from and masks to a store: whole or not at all, whatever the network does in between."""

import io
import os
import time
import zipfile

import pytest

pytest.importorskip("s3fs")
pytest.importorskip("moto")

from helpers.faulty_store import BUCKET, store

from mona_infer.errors import InputError
from mona_infer.io import remote
from mona_infer.io.remote import retry, s3, stores
from mona_infer.io.remote.listing import cases_of

SCANS = f"s3://{BUCKET}/scans"


@pytest.fixture
def shop(monkeypatch):
    with store(seed=3) as running:
        for name, value in running.env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(retry, "SHORTEST_WAIT", 0.002)
        monkeypatch.setattr(retry, "LONGEST_WAIT", 0.05)
        monkeypatch.setattr(retry, "_answered", set())
        _forget_sessions()
        yield running
        _forget_sessions()


def _forget_sessions():
    s3.connected.cache_clear()


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("s3://bucket/scan.nii.gz", True),
        ("memory://scan.nii", True),
        ("zip://a.nii::s3://bucket/a.zip", True),
        ("gs://bucket", True),
        ("scan.nii.gz", False),
        ("/data/s3:/scan.nii", False),
        ("C:\\scans\\a.nii", False),
        ("C://scans/a.nii", False),
        ("a:b/c.nii", False),
    ],
)
def test_what_is_remote(place, expected):
    assert remote.is_remote(place) is expected


def test_the_rules_of_folders_hold_for_listings():
    names = ["a.nii.gz", "a_gt.nii.gz", "b_gt.nii.gz", "p/1.DCM", "p/2.dcm", "p/.hidden", "q/r/c.NRRD", "q/notes.txt"]
    names += ["z.zip", "t.txt", ".h/x.nii", "empty/", "v.hdr", "v.img", "q/q/1"]
    found = list(cases_of(names))
    assert found == ["a.nii.gz", "b_gt.nii.gz", "p/", "q/q/", "q/r/c.NRRD", "v.hdr", "z.zip"]


def test_a_listing_gives_what_a_folder_gives(shop, tmp_path):
    """The same names on the disk and in the store are the same cases."""
    from mona_infer.segmenting.jobs import find_jobs

    names = [
        "a.nii.gz",
        "a_gt.nii.gz",
        "p/1",
        "p/2",
        "q/r/c.nrrd",
        "q/r/c_gt.nrrd",
        "q/x.txt",
        "z.zip",
        "k/v.mhd",
        "k/v.raw",
    ]
    for name in names:
        path = tmp_path / "scans" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        shop.put(f"scans/{name}", b"x")
    jobs, _ = find_jobs(tmp_path / "scans", tmp_path / "masks")
    assert [name for name, _ in remote.named_scans(SCANS)] == [job.name for job in jobs]
    patterned = remote.named_scans(f"s3://{BUCKET}/sc*/**/*.nrrd")
    assert patterned == [("scans/q/r/c", f"{SCANS}/q/r/c.nrrd")]
    assert remote.find_scans(f"{SCANS}/a.nii.gz") == [f"{SCANS}/a.nii.gz"]
    with pytest.raises(InputError, match=r"contains no scans"):
        remote.find_scans(f"s3://{BUCKET}/nothing")


def test_a_long_listing_has_every_page(shop, monkeypatch):
    for n in range(25):
        shop.put(f"many/{n:03}.nii", b"")
    real = s3.S3.names
    asked = []

    def few(method, **words):
        asked.append(method)
        return call(method, **words | {"MaxKeys": 10})

    probe = s3.S3()
    call = probe.fs.call_s3
    monkeypatch.setattr(probe.fs, "call_s3", few)
    assert len(set(real(probe, remote.listing.parse(f"s3://{BUCKET}/many")))) == 25
    assert asked == ["list_objects_v2"] * 3


def test_half_of_the_answers_fail_and_nothing_is_lost(shop, tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "PIECE", 100_000)
    scans = {f"{n}.nii": os.urandom(size) for n, size in enumerate([0, 1, 99_999, 100_000, 100_001, 450_000] * 2)}
    for name, data in scans.items():
        shop.put(f"scans/{name}", data)
    shop.faults.share = 0.5
    found = remote.find_scans(SCANS)
    assert [place.rpartition("/")[2] for place in found] == sorted(scans)
    for place in found:
        path = remote.fetch(place, tmp_path)
        assert path.read_bytes() == scans[path.name]
        remote.publish(path, f"s3://{BUCKET}/masks/{path.name}")
    assert remote.names_in(f"s3://{BUCKET}/masks/") == set(scans)
    assert all(shop.get(f"masks/{name}") == data for name, data in scans.items())
    assert set(shop.faults.failed) == {"500", "503", "proxy", "lost", "reset", "cut", "short", "flipped"}
    assert shop.faults.failed.total() > 0.4 * shop.faults.asked
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(scans)


def test_a_large_mask_goes_in_parts_and_none_is_left_behind(shop, tmp_path, monkeypatch):
    monkeypatch.setattr(s3, "PART", 5 << 20)
    path = tmp_path / "mask.nii"
    path.write_bytes(os.urandom(11 << 20))
    shop.faults.share = 0.5
    remote.publish(path, f"s3://{BUCKET}/mask.nii")
    assert shop.get("mask.nii") == path.read_bytes()
    assert not shop.unfinished()
    # The answer that tells the upload's id is lost twice: three are begun, and none of them is left.
    lost = ["lost", "reset"]
    shop.faults.share = 0
    shop.faults.rule = lambda method, path, query: (
        lost.pop() if method == "POST" and "uploads" in query and lost else None
    )
    remote.publish(path, f"s3://{BUCKET}/mask.nii")
    assert not lost and not shop.unfinished()
    # The second part is never accepted: nothing gets the name, and the first part is given up.
    shop.faults.rule = lambda method, path, query: "500" if "partNumber=2" in query else None
    with pytest.raises(
        InputError, match=r"other.nii cannot be written, after 20 attempts in \d+ s: the store answered 500"
    ):
        remote.publish(path, f"s3://{BUCKET}/other.nii")
    assert shop.keys("other") == []
    assert not shop.unfinished()
    # An upload that a killed process has left is given up by the next of the same object, once it is old.
    shop.faults.rule = None
    shop.s3.create_multipart_upload(Bucket=BUCKET, Key="mask.nii")
    remote.publish(path, f"s3://{BUCKET}/mask.nii")
    assert len(shop.unfinished()) == 1  # it may be of a process that still runs
    monkeypatch.setattr(s3, "LEFT_BEHIND", s3.timedelta(seconds=-1))  # moto's clock stands still
    remote.publish(path, f"s3://{BUCKET}/mask.nii")
    assert not shop.unfinished()


def test_a_mask_whose_store_never_answers_is_not_there(shop, tmp_path):
    path = tmp_path / "m.nii"
    path.write_bytes(b"mask")
    shop.faults.rule = lambda method, *_: "503" if method == "PUT" else None
    with pytest.raises(InputError, match=r"after 20 attempts in .* s: the store answered 503 SlowDown"):
        remote.publish(path, f"s3://{BUCKET}/masks/m.nii")
    assert shop.keys() == []


def test_permanent_failures_are_told_at_once(shop, tmp_path):
    shop.put("scans/a.nii", b"scan")
    for place, words in [
        (f"s3://{BUCKET}/scans/b.nii", "scans/b.nii does not exist"),
        ("s3://no-such-bucket/b.nii", "s3://no-such-bucket/b.nii does not exist"),
    ]:
        before = shop.faults.asked
        with pytest.raises(InputError, match=words):
            remote.fetch(place, tmp_path)
        assert shop.faults.asked - before <= 2
        assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match=r"no-such-bucket/x cannot be listed: there is no such bucket"):
        remote.names_in("s3://no-such-bucket/x")
    with pytest.raises(InputError, match=r"m.nii cannot be written: there is no such bucket"):
        remote.publish(_file(tmp_path), "s3://no-such-bucket/m.nii")


def _file(folder):
    path = folder / "m.nii"
    path.write_bytes(b"mask")
    return path


def test_without_permission(shop, tmp_path, monkeypatch):
    shop.put("scans/a.nii", b"scan")
    shop.faults.rule = lambda *_: "403"
    for action, words in [
        (lambda: remote.fetch(f"{SCANS}/a.nii", tmp_path), "a.nii cannot be read: permission denied"),
        (lambda: remote.find_scans(f"{SCANS}/"), "cannot be listed: permission denied .AccessDenied.; check the cred"),
        (lambda: remote.publish(_file(tmp_path), f"{SCANS}/m.nii"), "written: permission denied .AccessDenied."),
    ]:
        before = shop.faults.asked
        with pytest.raises(InputError, match=words) as told:
            action()
        assert shop.faults.asked - before < 10  # 20 if it were tried again; a connection may end with an answer
        assert "not-a-secret" not in str(told.value)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    _forget_sessions()
    with pytest.raises(InputError, match=r"no credentials were found; set AWS_ACCESS_KEY_ID"):
        remote.fetch(f"{SCANS}/a.nii", tmp_path)


def test_nobody_answers(shop, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    _forget_sessions()
    with pytest.raises(InputError, match=r"after 5 attempts in \d+ s: the store cannot be reached; check the address"):
        remote.fetch(f"{SCANS}/a.nii", tmp_path)


def test_a_store_that_falls_silent(shop, tmp_path, monkeypatch):
    monkeypatch.setattr(s3, "SILENCE", 0.5)
    shop.put("scans/a.nii", b"scan")
    told = []
    shop.faults.rule = lambda *request: told.append(request) or ("silent" if len(told) == 1 else None)
    began = time.monotonic()
    assert remote.fetch(f"{SCANS}/a.nii", tmp_path).read_bytes() == b"scan"
    assert len(told) == 3 and time.monotonic() - began > 0.5


def test_an_object_that_vanishes_while_it_is_read(shop, tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "PIECE", 4)
    shop.put("scans/a.nii", b"0123456789")

    def vanish(method, path, query):
        if method == "GET" and "a.nii" in path:
            shop.s3.delete_object(Bucket=BUCKET, Key="scans/a.nii")

    shop.faults.rule = vanish
    with pytest.raises(InputError, match=r"a.nii cannot be read: it does not exist .any more."):
        remote.fetch(f"{SCANS}/a.nii", tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_object_that_is_replaced_while_it_is_read(shop, tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "PIECE", 4)
    shop.put("scans/a.nii", b"0123456789")
    replaced = []

    def replace(method, path, query):
        if method == "GET" and "a.nii" in path and len(replaced) < 2:
            replaced.append(path)
            if len(replaced) == 2:  # between the first and second piece
                shop.put("scans/a.nii", b"another object, and a longer one")

    shop.faults.rule = replace
    assert remote.fetch(f"{SCANS}/a.nii", tmp_path).read_bytes() == b"another object, and a longer one"


@pytest.mark.parametrize("kind", ["cut", "short", "flipped"])
def test_a_body_that_is_not_the_object(shop, tmp_path, kind):
    """Always: a file that is not what the store said it holds never gets its name."""
    shop.put("scans/a.nii", bytes(range(256)) * 40)
    shop.faults.rule = lambda method, path, query: kind if method == "GET" else None
    with pytest.raises(InputError, match=r"a.nii cannot be read, after 20 attempts"):
        remote.fetch(f"{SCANS}/a.nii", tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_tag_that_is_no_checksum(shop, tmp_path):
    """Some stores have tags of their own: twice the same bytes are then the object."""
    remote.publish(_file(tmp_path), f"{SCANS}/m.nii")  # without a checksum of Amazon's newer kind
    shop.faults.rule = lambda method, path, query: "flipped" if method == "GET" else None
    assert remote.fetch(f"{SCANS}/m.nii", tmp_path / "back").read_bytes() == b"lask"
    assert len([r for r in shop.faults.requests if r[0] == "GET"]) == 2


@pytest.mark.parametrize(
    "name",
    [
        "with space.nii",
        "prozent %41 100%.nii",
        "Süß 心臓 é.nii",
        "a+b&c=d?e#f.nii",
        "x::file:___etc_passwd.nii",
        "q?versionId=7.nii",
        "[1]*.nii",
    ],
)
def test_odd_names(shop, tmp_path, name):
    shop.put(f"scans/{name}", name.encode())
    assert remote.find_scans(SCANS) == [f"{SCANS}/{name}"]
    path = remote.fetch(f"{SCANS}/{name}", tmp_path)
    assert path == tmp_path / name
    assert path.read_bytes() == name.encode()
    remote.publish(path, f"s3://{BUCKET}/masks/{name}")
    assert remote.names_in(f"s3://{BUCKET}/masks") == {name}
    assert remote.exists(f"s3://{BUCKET}/masks/{name}")


def test_names_that_would_lead_out_of_the_folder(shop, tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    shop.put("scans/../x.nii", b"x")
    shop.put("scans/ok.nii", b"ok")
    places = remote.find_scans(SCANS)
    assert places == [f"{SCANS}/../x.nii", f"{SCANS}/ok.nii"]  # listed, so that it is told as bad
    for place in [places[0], f"{SCANS}/..", f"{SCANS}/a\\..\\b.nii", f"{SCANS}/a\0b.nii", f"{SCANS}/{'n' * 300}.nii"]:
        with pytest.raises(InputError, match=r"rename the object"):
            remote.fetch(place, inside)
    with pytest.raises(InputError, match=r"never followed"):
        remote.publish(_file(inside), f"{SCANS}/../x.nii")
    assert [p.name for p in tmp_path.rglob("*")] == ["inside", "m.nii"]


def test_dicom_folders_and_pairs_come_whole(shop, tmp_path):
    for name in ("series/1", "series/2", "series/deep/3", "series/.hidden"):
        shop.put(f"scans/{name}", name.encode())
    shop.put("scans/v.hdr", b"header")
    shop.put("scans/v.img", b"voxels")
    folder, header = (remote.fetch(place, tmp_path) for place in remote.find_scans(SCANS))
    assert sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()) == ["1", "2", "deep/3"]
    assert header.with_suffix(".img").read_bytes() == b"voxels"


@pytest.mark.parametrize("outer", ["s3", "local"])
def test_scans_in_a_zip(shop, tmp_path, outer):
    data = {"a.nii": os.urandom(3_000_000), "p/b.nii": b"b" * 100_000, "../evil.nii": b"e"}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in data.items():
            file.writestr(name, content)
    shop.put("all.zip", packed.getvalue())
    (tmp_path / "all.zip").write_bytes(packed.getvalue())
    where = f"s3://{BUCKET}/all.zip" if outer == "s3" else str(tmp_path / "all.zip")
    shop.faults.share = 0.5
    places = remote.find_scans(f"zip://::{where}")
    assert places == [f"zip://{name}::{where}" for name in sorted(data)]
    into = tmp_path / "into"
    for place, name in zip(places[1:], sorted(data)[1:], strict=True):
        assert remote.fetch(place, into).read_bytes() == data[name]
    with pytest.raises(InputError, match=r"never followed"):
        remote.fetch(places[0], into)
    with pytest.raises(InputError, match=r"zips are for reading"):
        remote.publish(_file(tmp_path), f"zip://x.nii::{where}")


def test_another_store_of_fsspec(tmp_path):
    path = _file(tmp_path)
    remote.publish(path, "memory://masks/p/m.nii")
    assert remote.names_in("memory://masks") == {"p/m.nii"}
    assert remote.fetch("memory://masks/p/m.nii", tmp_path / "back").read_bytes() == b"mask"
    assert remote.find_scans("memory://masks") == ["memory://masks/p/m.nii"]
    assert not remote.exists("memory://masks/p/n.nii")


def test_a_store_whose_package_is_missing():
    from mona_infer.errors import MissingPart

    with pytest.raises(MissingPart, match=r"gs:// needs gcsfs that is not installed; run: .* -m pip install .gcsfs"):
        remote.exists("gs://bucket/a.nii")
    with pytest.raises(InputError, match=r"nowhere:// is not a store that fsspec knows"):
        remote.exists("nowhere://a.nii")
