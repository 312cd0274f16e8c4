# SPDX-License-Identifier: Apache-2.0
"""The contents and metadata of the archives that images/build writes."""

import json
import os
import pathlib
import re
import subprocess
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
IMAGES = pathlib.Path(os.environ.get("RINGMASTER_IMAGES", ROOT / "build/images"))
MEBI = 1 << 20
GLIBC = re.compile(r"(ld-linux-x86-64|lib(c|m|mvec|pthread|dl|rt|resolv|util))\.so\.\d")
DRIVER = re.compile(r"libcuda\.so\.1")  # NVIDIA's, which a node gives to a container


class Image:
    def __init__(self, name):
        (self.path,) = IMAGES.glob(f"ringmaster-{name}-*.tar")
        with tarfile.open(self.path) as archive:
            self._blobs = {member.name.removeprefix("./"): member for member in archive}
            read = lambda name: json.load(archive.extractfile(self._blobs[name]))  # noqa: E731
            (self.entry,) = read("index.json")["manifests"]
            self.manifest = read(self._blob(self.entry))
            self.configuration = read(self._blob(self.manifest["config"]))
        self.config = self.configuration["config"]
        self.sbom = json.loads(self.path.with_suffix(".spdx.json").read_text())

    @staticmethod
    def _blob(descriptor):
        return "blobs/" + descriptor["digest"].replace(":", "/")

    def unpack_ours(self, folder):
        """Unpacks the layers above the base."""
        with tarfile.open(self.path) as archive:
            for layer in self.manifest["layers"][1:]:
                with tarfile.open(fileobj=archive.extractfile(self._blobs[self._blob(layer)]), mode="r:*") as content:
                    content.extractall(folder)

    def layers(self):
        """Yields the size in bytes and the tar members of each layer."""
        with tarfile.open(self.path) as archive:
            for layer in self.manifest["layers"]:
                with tarfile.open(fileobj=archive.extractfile(self._blobs[self._blob(layer)]), mode="r:*") as content:
                    members = content.getmembers()
                    yield sum(member.size for member in members), members


class Images(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.images = {name: Image(name) for name in ("operator", "worker")}

    def test_labels_signal_and_name(self):
        for name, image in self.images.items():
            with self.subTest(name):
                labels = image.config["Labels"]
                self.assertEqual(labels["org.opencontainers.image.title"], f"ringmaster-{name}")
                version = labels["org.opencontainers.image.version"]
                self.assertEqual(image.entry["annotations"]["io.containerd.image.name"],
                                 f"docker.io/library/ringmaster-{name}:{version}")
                self.assertRegex(labels["org.opencontainers.image.revision"], "^([0-9a-f]{40}|unknown)$")
                self.assertEqual(image.config["StopSignal"], "SIGTERM")

    def test_users_and_entry_points(self):
        self.assertEqual(self.images["operator"].config["User"], "65532:65532")
        self.assertEqual(self.images["operator"].config["Entrypoint"], ["/usr/local/bin/ringmaster-operator"])
        self.assertEqual(self.images["worker"].config["Entrypoint"], ["/usr/local/bin/ringmaster-agent"])

    def test_the_operator_is_small(self):
        sizes = [size for size, _ in self.images["operator"].layers()]
        self.assertGreater(len(sizes), 1, "the layers of the base cannot be identified")
        over_base = sum(sizes[1:]) / MEBI
        print(f"operator: {over_base:.1f} MiB over its base of {sizes[0] / MEBI:.1f} MiB", flush=True)
        self.assertLess(over_base, 60)

    def test_all_files_have_the_same_time(self):
        for name, image in self.images.items():
            with self.subTest(name):
                built = {member.mtime for _, members in list(image.layers())[1:] for member in members}
                self.assertEqual(len(built), 1, "files of different times")

    def test_transports_are_there(self):
        files = {member.name for _, members in self.images["worker"].layers() for member in members}
        for wanted in ("libuct_ib.so.0", "libuct_cma.so.0", "libuct_rdmacm.so.0", "libmlx5-rdmav34.so"):
            self.assertTrue([file for file in files if file.endswith("/" + wanted)], wanted)

    def test_programs_need_only_glibc_of_the_base(self):
        """Another base may have other versions of all other libraries, or none."""
        for name, image in self.images.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                image.unpack_ours(folder)
                ours = pathlib.Path(folder) / "usr/local"
                files = [file for place in ("bin", "lib/ringmaster") for file in (ours / place).rglob("*") if file.is_file()]
                there, needed = {file.name for file in files}, {}
                for file in files:
                    said = subprocess.run(["readelf", "-d", file], capture_output=True, text=True, check=True).stdout
                    needed |= {wanted: file.name for wanted in re.findall(r"\(NEEDED\).*\[(.*)\]", said)}
                self.assertGreater(len(files), 10)
                missing = {wanted: by for wanted, by in needed.items()
                           if wanted not in there and not GLIBC.fullmatch(wanted) and not DRIVER.fullmatch(wanted)}
                self.assertEqual(missing, {})

    def test_the_list_of_contents_is_complete(self):
        for name, program in (("operator", "ringmaster-operator"), ("worker", "ringmaster-agent")):
            with self.subTest(name):
                sbom = self.images[name].sbom
                self.assertEqual(sbom["spdxVersion"], "SPDX-2.3")
                names = [package["name"] for package in sbom["packages"]]
                self.assertIn(f"program-{program}", names)
                self.assertIn("libc6", names)
                self.assertIn("gathered-libcpprest2.10", names)
                identifiers = [package["SPDXID"] for package in sbom["packages"]]
                self.assertEqual(len(identifiers), len(set(identifiers)))
                contained = {relation["relatedSpdxElement"] for relation in sbom["relationships"]}
                self.assertEqual(set(identifiers), contained)


if __name__ == "__main__":
    unittest.main()
