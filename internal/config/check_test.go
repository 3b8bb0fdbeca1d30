package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/config"
)

func isKnownGPU(s string) bool { return strings.HasPrefix(s, "L4") }

// TestCheckFileOpensNamedFiles: a missing certificate is a mistake with its line; a world-readable key and an
// unknown GPU type are warnings.
func TestCheckFileOpensNamedFiles(t *testing.T) {
	dir, err := os.MkdirTemp("", "c") // a long name would be masked as a key
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	write := func(name string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	text := []byte(`role: local
name: l1
region: fra
zone: a
dir: state
tls: {cert: c.pem, key: k.pem, ca: ca.pem}
http: {listen: 127.0.0.1:8080}
gateways: [127.0.0.1:7401]
workers:
  - {name: w1, url: http://127.0.0.1:1, gpu: H1000, api_key_file: worker.key, header_files: {X-A: a.key}}
  - {name: w2, url: http://127.0.0.1:2, gpu: L4x2}
`)
	name := filepath.Join(dir, "l1.yaml")
	_, err = config.CheckFile(name, text, isKnownGPU)
	for _, file := range []string{"c.pem", "k.pem", "ca.pem", "worker.key", "a.key"} {
		if err == nil || !strings.Contains(err.Error(), "file "+filepath.Join(dir, file)+" cannot be read: no such file or directory") {
			t.Errorf("%s is missing: %v", file, err)
		}
	}
	if err != nil && !strings.Contains(err.Error(), "l1.yaml:6:") {
		t.Errorf("no line: %v", err)
	}
	for _, file := range []string{"c.pem", "ca.pem", "a.key"} {
		write(file, 0o600)
	}
	write("k.pem", 0o644)
	write("worker.key", 0o604)
	c, err := config.CheckFile(name, text, isKnownGPU)
	if err != nil || c.Kind != "local config" || c.Warnings == nil {
		t.Fatalf("%+v, %v", c, err)
	}
	for _, want := range []string{"every user of this machine can read " + filepath.Join(dir, "k.pem"), "can read " + filepath.Join(dir, "worker.key"), `unknown GPU type "H1000"`} {
		if !strings.Contains(c.Warnings.Error(), want) {
			t.Errorf("no %q in %v", want, c.Warnings)
		}
	}
	if n := len(c.Warnings.Mistakes); n != 3 {
		t.Errorf("%d warnings: %v", n, c.Warnings)
	}
	write("k.pem", 0o600)
	write("worker.key", 0o640)
	if c, err := config.CheckFile(name, []byte(strings.Replace(string(text), "H1000", "L4", 1)), isKnownGPU); err != nil || c.Warnings != nil {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestGuessRoleFromKeys(t *testing.T) {
	for text, want := range map[string]string{
		"name: l1\nregion: fra\nzone: a\nworkers: []\n":                    "local",
		"name: gw1\nregion: fra\nglobals: [g1:7401]\npeer: {}\nhttp: {}\n": "regional",
		"name: g1\nraft: {}\ndns: {}\nuplink: {}\n":                        "global",
		"name: w\nlisten: 127.0.0.1:1\nmodel: m\nserved_as: x\n":           "worker",
		"zone: ai.example.\nmodels: []\nregions: []\nservices: []\n":       "",
		"models: []\n": "",
		"":             "",
	} {
		if got := config.GuessRole([]byte(text)); got != want {
			t.Errorf("%q looks like %q, want %q", text, got, want)
		}
	}
	err := config.MissingRoleError("/x/l1.yaml", []byte("name: l1\n"), "local")
	if err == nil || !strings.Contains(err.Error(), "the role is missing: the keys are those of role local") || !strings.Contains(err.Error(), "write role: local") {
		t.Error(err)
	}
}

// TestPlainHTTPExcludesGateways: gateways connect to a zone by TLS only.
func TestPlainHTTPExcludesGateways(t *testing.T) {
	text := "role: local\nname: l1\nregion: fra\nzone: a\ndir: d\ntls: {cert: c, key: k, ca: a}\nhttp: {plain: true, listen: 127.0.0.1:1}\ngateways: [127.0.0.1:7401]\nworkers:\n  - {name: w1, url: http://127.0.0.1:2}\n"
	if _, err := config.Decode("l1.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), "gateways reach a zone by TLS alone") {
		t.Error(err)
	}
}
