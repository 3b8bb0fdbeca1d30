package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// composeFile is what the tests read of a Compose file.
type composeFile struct {
	Services map[string]struct {
		Command []string
		Volumes []string
	}
}

func readComposeFile(t *testing.T, dir string) (c composeFile) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(string(text), "<<: *", "x: *")), &c); err != nil { // aliases are not needed here
		t.Fatal(err)
	}
	return c
}

// TestComposeConfigsAreValid makes the certificates as the service certs of the Compose file does and checks the config files of
// all services with them. make test-containers runs the containers.
func TestComposeConfigsAreValid(t *testing.T) {
	dir := filepath.Join("..", "..", "deploy", "compose", "three-regions")
	c, certs := readComposeFile(t, dir), t.TempDir()
	makeCerts := slices.Clone(c.Services["certs"].Command)
	i := slices.Index(makeCerts, "/var/lib/spillway")
	if i < 0 {
		t.Fatalf("the service certs runs %q", makeCerts)
	}
	makeCerts[i] = certs
	if _, _, err := runSpillway(t, makeCerts...); err != nil {
		t.Fatal(err)
	}
	copies := t.TempDir()
	files, err := filepath.Glob(filepath.Join(dir, "config", "*.yaml"))
	if err != nil || len(files) != 10 {
		t.Fatalf("%d config files (%v), want those of 9 nodes and the spec", len(files), err)
	}
	for _, f := range append(files, filepath.Join(dir, "worker.yaml"), filepath.Join(dir, "..", "one-machine", "worker.yaml")) {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		local := strings.NewReplacer("/certs/", certs+"/", "/etc/spillway/", copies+"/").Replace(string(text))
		if err := os.WriteFile(filepath.Join(copies, filepath.Base(f)), []byte(local), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	written, err := filepath.Glob(filepath.Join(copies, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range written {
		if _, stderr, err := runSpillway(t, "config", "check", f); err != nil {
			t.Errorf("%s: %v\n%s", filepath.Base(f), err, stderr)
		}
	}
	for name, s := range c.Services {
		if i := slices.Index(s.Command, "-c"); i >= 0 {
			if _, err := os.Stat(filepath.Join(copies, filepath.Base(s.Command[i+1]))); err != nil {
				t.Errorf("service %s: %v", name, err)
			}
		}
	}
}
