"""A certificate authority for tests, through the openssl program."""
import subprocess


def openssl(*arguments, folder):
    done = subprocess.run(["openssl", *map(str, arguments)], cwd=folder, capture_output=True,
                          text=True)
    assert done.returncode == 0, f"openssl {' '.join(map(str, arguments))}:\n{done.stderr}"


class Pair:
    """Files of a certificate and its key."""

    def __init__(self, certificate, key):
        self.certificate, self.key = certificate, key

    def pem(self):
        return self.certificate.read_bytes(), self.key.read_bytes()

    def cli(self):
        return ["--tls-cert", self.certificate, "--tls-key", self.key]


class Authority:
    def __init__(self, folder, name="ca"):
        self.folder, self.count = folder / name, 0
        self.folder.mkdir()
        self.certificate, self.key = self.folder / "ca.pem", self.folder / "ca.key"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-days", 30, "-subj", f"/CN={name}", "-keyout", self.key, "-out", self.certificate,
                folder=self.folder)
        (self.folder / "index.txt").touch()

    def issue(self, name, san="", begin=None, end=None):
        """A certificate with this common name. `begin`, `end`: YYYYMMDDHHMMSSZ."""
        self.count += 1
        stem = self.folder / f"{self.count}"
        request, extensions = stem.with_suffix(".csr"), stem.with_suffix(".ext")
        pair = Pair(stem.with_suffix(".pem"), stem.with_suffix(".key"))
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                f"/CN={name}", "-keyout", pair.key, "-out", request, folder=self.folder)
        extensions.write_text(
            "[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\nserial=serial\nnew_certs_dir=.\n"
            "default_md=sha256\npolicy=p\nunique_subject=no\nrand_serial=yes\n"
            "[p]\ncommonName=supplied\n[e]\nbasicConstraints=CA:FALSE\n"
            + (f"subjectAltName={san}\n" if san else ""))
        dates = (["-startdate", begin] if begin else []) + (["-enddate", end] if end else
                                                            ["-days", 20])
        openssl("ca", "-batch", "-config", extensions, "-extensions", "e", "-cert",
                self.certificate, "-keyfile", self.key, "-in", request, "-out", pair.certificate,
                "-notext", *dates, folder=self.folder)
        return pair

    def server(self, **dates):
        return self.issue("server", "IP:127.0.0.1,DNS:localhost", **dates)

    def client(self, tenant, **dates):
        """One that names its tenant in a URI; its common name is another."""
        return self.issue("somebody", f"URI:sparsefw:tenant:{tenant}", **dates)
