package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

var testDate = time.Date(2026, 11, 24, 2, 38, 0, 0, time.UTC)

func TestPackageVersionIsOrderedLikeCommits(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3":                        "1.2.3",
		"1.2.3":                         "1.2.3",
		"v1.2.3-rc.1":                   "1.2.3~rc.1",
		"v1.2.3-14-g0123456789ab":       "1.2.3+14.g0123456789ab",
		"v1.2.3-rc.1-2-g0123456789ab":   "1.2.3~rc.1+2.g0123456789ab",
		"v1.2.3-dirty":                  "1.2.3+dirty",
		"v1.2.3-1-g0123456789ab-dirty":  "1.2.3+1.g0123456789ab.dirty",
		"0123456789ab":                  "0.0.0+git20261124023800.0123456789ab",
		"0123456789ab-dirty":            "0.0.0+git20261124023800.0123456789ab.dirty",
		"main":                          "",
		"v1.2":                          "",
		"":                              "",
		"v1.2.3; rm -r /":               "",
		"v1.2.3-rc.1 -X main.version=1": "",
	} {
		got, err := formatPackageVersion(version, testDate)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v, want %q", version, got, err, want)
		}
	}
}

func TestUnknownTargetsAndKindsAreRefused(t *testing.T) {
	for _, list := range []string{"", "linux", "windows/amd64", "linux/386", "linux/amd64,"} {
		if _, err := parsePlatforms(list); err == nil {
			t.Errorf("-targets %q is accepted", list)
		}
	}
	if _, err := parseKinds("archive,msi"); err == nil {
		t.Error("-kinds msi is accepted")
	}
}

// TestArchivesDependOnContentOnly: the order, the times and the modes of the files on disk do not change an archive.
func TestArchivesDependOnContentOnly(t *testing.T) {
	dir := t.TempDir()
	build := func(name string, order []string, mode os.FileMode, age time.Duration) []byte {
		var files []packedFile
		for _, f := range order {
			path := filepath.Join(dir, name+"-"+f)
			if err := os.WriteFile(path, []byte("content of "+f), mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, testDate.Add(-age), testDate.Add(-age)); err != nil {
				t.Fatal(err)
			}
			files = append(files, packedFile{path: "x/" + f, source: path, mode: 0o644})
		}
		out := filepath.Join(dir, name+".tar.gz")
		if err := writeTarGz(out, files, testDate); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	one, two := build("one", []string{"b", "a"}, 0o600, 0), build("two", []string{"a", "b"}, 0o644, time.Hour)
	if !bytes.Equal(one, two) {
		t.Error("two archives of the same content differ")
	}
}

// TestSBOMListsLinkedModules: every module of the binary is a component, a replaced one as what replaces it.
func TestSBOMListsLinkedModules(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.8", Main: debug.Module{Path: "example.org/spillway"},
		Deps: []*debug.Module{
			{Path: "example.org/a", Version: "v1.0.0", Sum: "h1:x"},
			{Path: "example.org/b", Version: "v2.0.0", Replace: &debug.Module{Path: "example.org/c", Version: "v3.0.0"}},
		},
	}
	bom := composeBOM(info, source{version: "v0.1.0", date: testDate}, platform{"linux", "arm64"}, sha256.Sum256(nil))
	var got []string
	for _, c := range *bom.Components {
		got = append(got, c.PackageURL)
	}
	if want := "pkg:golang/std@1.26.8 pkg:golang/example.org/a@v1.0.0 pkg:golang/example.org/c@v3.0.0"; strings.Join(got, " ") != want {
		t.Errorf("components %q, want %q", got, want)
	}
	root := bom.Metadata.Component
	if root.PackageURL != "pkg:golang/example.org/spillway@v0.1.0?goos=linux&goarch=arm64" || bom.Metadata.Timestamp != "2026-11-24T02:38:00Z" {
		t.Errorf("metadata %+v at %s", root, bom.Metadata.Timestamp)
	}
	if deps := (*bom.Dependencies)[0]; deps.Ref != root.BOMRef || len(*deps.Dependencies) != 3 {
		t.Errorf("dependencies %+v", deps)
	}
}

// TestImageLayoutIsConsistent reads an image back: every digest and size matches its blob, the layer contains the root
// filesystem, and a second build gives the same bytes.
func TestImageLayoutIsConsistent(t *testing.T) {
	build := func() []byte {
		b := builder{source: source{version: "v0.1.0", commit: "0123", date: testDate}, out: t.TempDir(), stage: t.TempDir()}
		platforms := []platform{{"linux", "amd64"}, {"linux", "arm64"}}
		for _, p := range platforms {
			if err := os.MkdirAll(filepath.Dir(b.binaryPath(p)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(b.binaryPath(p), []byte("binary for "+p.arch), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.writeImageArchive(platforms); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(b.out, "spillway-0.1.0-image.tar"))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	archive := build()
	if !bytes.Equal(archive, build()) {
		t.Error("two builds of one image differ")
	}
	blobs := readTestTar(t, bytes.NewReader(archive))
	follow := func(d descriptor, into any) []byte {
		t.Helper()
		data := blobs["blobs/"+strings.Replace(d.Digest, ":", "/", 1)]
		if len(data) != d.Size || fmt.Sprintf("sha256:%x", sha256.Sum256(data)) != d.Digest {
			t.Fatalf("blob of %+v has %d bytes or another digest", d, len(data))
		}
		if into != nil {
			if err := json.Unmarshal(data, into); err != nil {
				t.Fatal(err)
			}
		}
		return data
	}
	var top, index manifest
	if err := json.Unmarshal(blobs["index.json"], &top); err != nil || len(top.Manifests) != 1 {
		t.Fatalf("index.json: %v, %+v", err, top)
	}
	follow(top.Manifests[0], &index)
	for i, arch := range []string{"amd64", "arm64"} {
		var (
			m manifest
			c imageConfig
		)
		if p := index.Manifests[i].Platform; p == nil || *p != (imagePlatform{Architecture: arch, OS: "linux"}) {
			t.Errorf("image %d is for %+v, want linux/%s", i, p, arch)
		}
		follow(index.Manifests[i], &m)
		follow(*m.Config, &c)
		if c.Config.User != "65532:65532" || c.Architecture != arch || len(c.Config.Healthcheck.Test) < 2 {
			t.Errorf("configuration %+v", c)
		}
		z, err := gzip.NewReader(bytes.NewReader(follow(m.Layers[0], nil)))
		if err != nil {
			t.Fatal(err)
		}
		layer, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("sha256:%x", sha256.Sum256(layer)); got != c.RootFS.DiffIDs[0] {
			t.Errorf("diff id %s, want %s", c.RootFS.DiffIDs[0], got)
		}
		files := readTestTar(t, bytes.NewReader(layer))
		if string(files["spillway"]) != "binary for "+arch {
			t.Errorf("%s: the layer has the binary %q", arch, files["spillway"])
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(files["etc/ssl/certs/ca-certificates.crt"]) {
			t.Error("the layer has no CA roots")
		}
		if n := bytes.Count(files["etc/ssl/certs/ca-certificates.crt"], []byte("BEGIN CERTIFICATE")); n < 100 {
			t.Errorf("%d CA roots, want more than 100", n)
		}
	}
}

// readTestTar returns the files of a tar file by path.
func readTestTar(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(testDate) || h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s: time %s, owner %d:%d", h.Name, h.ModTime, h.Uid, h.Gid)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = data
	}
}
