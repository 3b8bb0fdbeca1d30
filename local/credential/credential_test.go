package credential

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/config"
)

func writeFile(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
}

func TestRefreshReadsChangedFiles(t *testing.T) {
	dir := t.TempDir()
	key, team := filepath.Join(dir, "key"), filepath.Join(dir, "team")
	writeFile(t, key, "first\n", 0o600)
	c := New(config.WorkerAccess{APIKeyFile: key, Headers: map[string]string{"x-plain": "p"}, HeaderFiles: map[string]string{"x-team": team}})
	if v := c.Value(); v.Err == nil || !strings.Contains(v.Err.Error(), "header_files.x-team: open "+team) {
		t.Fatalf("a missing file: %v", v.Err)
	}
	writeFile(t, team, "blue", 0o600)
	if got := c.RefreshFiles(); !got.Changed || got.Err != nil || got.TLS {
		t.Fatalf("%+v", got)
	}
	h := c.Value().Header
	if h.Get("Authorization") != "Bearer first" || h.Get("X-Team") != "blue" || h.Get("X-Plain") != "p" || len(h) != 3 {
		t.Fatalf("%d headers are not those of the files", len(h))
	}
	if got := c.RefreshFiles(); got.Changed || got.Err != nil {
		t.Fatalf("nothing changed: %+v", got)
	}
	writeFile(t, key, "other", 0o600) // same length and modification time
	if got := c.RefreshFiles(); !got.Changed || c.Value().Header.Get("Authorization") != "Bearer other" {
		t.Fatalf("%+v", got)
	}
	for _, bad := range []string{"", " \n", "two words\nand lines", "k\x00y", strings.Repeat("k", 5000)} {
		writeFile(t, key, bad, 0o600)
		got := c.RefreshFiles()
		if got.Err == nil || got.Changed || c.Value().Header.Get("Authorization") != "Bearer other" {
			t.Fatalf("%q replaced the last good key: %+v", bad, got)
		}
		if bad != "" && strings.TrimSpace(bad) != "" && strings.Contains(got.Err.Error(), bad[:2]+"y") {
			t.Fatalf("the error holds the key: %v", got.Err)
		}
	}
}

func TestWorldReadableFileIsReported(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	for mode, exposed := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true, 0o604: true} {
		writeFile(t, key, "secret", mode)
		got := New(config.WorkerAccess{APIKeyFile: key}).RefreshFiles()
		if (len(got.ExposedFiles) > 0) != exposed {
			t.Errorf("mode %o: exposed %v", mode, got.ExposedFiles)
		}
	}
}

func TestCredentialIsNeverPrinted(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	writeFile(t, key, "hunter2secret", 0o600)
	c := New(config.WorkerAccess{APIKeyFile: key})
	for _, text := range []string{fmt.Sprint(c), fmt.Sprintf("%v %+v %#v", *c.Value(), *c.Value(), *c.Value()), fmt.Sprintf("%v", c.Value())} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("printed: %s", text)
		}
	}
}

func FuzzParseSecret(f *testing.F) {
	f.Add([]byte("sk-key\n"))
	f.Add([]byte(" \r\n"))
	f.Add([]byte("a\nb"))
	f.Add([]byte("k\x80"))
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := ParseSecret(text)
		if err == nil && !config.IsHeaderValue(v) {
			t.Fatalf("%q is no header's value", v)
		}
	})
}
