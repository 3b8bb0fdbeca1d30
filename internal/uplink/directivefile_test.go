package uplink

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDirectiveFileRestoresPolicy(t *testing.T) {
	k := DirectiveFile{Dir: filepath.Join(t.TempDir(), "made", "here")}
	if d, err := k.LoadDirective(); d != nil || err != nil {
		t.Fatalf("an empty folder holds %+v (%v)", d, err)
	}
	d := &Directive{
		Index: 9, SpecVersion: 3, Spec: []byte("zone: x"), PlanEpoch: 5, TicketKeys: [][]byte{[]byte("secret-of-tickets")},
		Drains: []ActiveDrain{{Path: "fra/fra-a", Until: time.Unix(1_700_000_000, 0).UTC(), Reason: "repair"}}, Peers: []PeerRegion{{Region: "iad"}},
	}
	for range 2 { // the second replaces the first
		if err := k.SaveDirective(d); err != nil {
			t.Fatal(err)
		}
	}
	got, err := k.LoadDirective()
	if err != nil {
		t.Fatal(err)
	}
	if age := time.Since(got.PersistedAt); age < 0 || age > time.Minute {
		t.Errorf("kept %v ago", age)
	}
	got.PersistedAt = time.Time{}
	want := &Directive{SpecVersion: 3, Spec: d.Spec, PlanEpoch: 5, Drains: d.Drains}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	files, _ := filepath.Glob(filepath.Join(k.Dir, "*"))
	if len(files) != 1 {
		t.Fatalf("the folder holds %v, want one file", files)
	}
	text, _ := os.ReadFile(files[0])
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 || bytes.Contains(text, []byte("secret")) {
		t.Errorf("mode %v (%v), content %s", info.Mode(), err, text)
	}
}

func TestDirectiveFileReportsUnreadableFile(t *testing.T) {
	k := DirectiveFile{Dir: t.TempDir()}
	for _, text := range []string{"", "{", `{"index":-1}`, `{"drains":3}`} {
		if err := os.WriteFile(filepath.Join(k.Dir, directiveFileName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if d, err := k.LoadDirective(); err == nil || !strings.Contains(err.Error(), "persisted directive") {
			t.Errorf("%q is taken for %+v (%v)", text, d, err)
		}
	}
}

func TestDirectiveFileWithoutDirStoresNothing(t *testing.T) {
	if err := (DirectiveFile{}).SaveDirective(&Directive{Index: 1}); err != nil {
		t.Fatal(err)
	}
	if d, err := (DirectiveFile{}).LoadDirective(); d != nil || err != nil {
		t.Fatalf("got %+v (%v)", d, err)
	}
}

// TestDirectiveFileRefusesCorruptContent: nothing of a truncated or changed file is used. A later release's file is
// not touched, with an error that names the release; a file of the previous format is read.
func TestDirectiveFileRefusesCorruptContent(t *testing.T) {
	k := DirectiveFile{Dir: t.TempDir()}
	if err := k.SaveDirective(&Directive{Index: 9, SpecVersion: 3, Spec: []byte("zone: x"), Drains: []ActiveDrain{{Path: "fra"}}}); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(k.Dir, directiveFileName)
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		text []byte
		says string
	}{
		"truncated": {good[:len(good)/2], "truncated"},
		"corrupt":   {bytes.Replace(good, []byte("zone: x"), []byte("zone: y"), 1), "corrupt"},
		"of later":  {bytes.Replace(good, []byte(`"format":2`), []byte(`"format":3`), 1), "written by a later one"},
		"unlawful":  {[]byte(`{"index":9,"spec":"zone: x","drains":[{"Path":""}]}`), "a drain has no path"},
	} {
		if err := os.WriteFile(name, c.text, 0o600); err != nil {
			t.Fatal(err)
		}
		if d, err := k.LoadDirective(); err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: decoded as %+v (%v)", what, d, err)
		}
	}
	if err := os.WriteFile(name, []byte(`{"index":9,"spec_version":3,"spec":"zone: x","drains":null}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if d, err := k.LoadDirective(); err != nil || d.SpecVersion != 3 || string(d.Spec) != "zone: x" || d.PersistedAt.IsZero() {
		t.Errorf("the form before: %+v (%v)", d, err)
	}
}

func FuzzDecodeDirectiveFile(f *testing.F) {
	text, err := os.ReadFile("testdata/kept.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"index":9,"spec_version":3,"spec":"zone: x","drains":[{"Path":"fra"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, err := decodeDirectiveFile(b); err == nil && d.checkDirective() != nil {
			t.Fatalf("unlawful: %+v", d)
		}
	})
}

func TestReadFileLimitedDistinguishesMissingFromEmpty(t *testing.T) {
	dir := t.TempDir()
	if text, at, err := ReadFileLimited(filepath.Join(dir, "none"), 10); text != nil || !at.IsZero() || err != nil {
		t.Errorf("no file: %q of %v, %v", text, at, err)
	}
	name := filepath.Join(dir, "folder", "file")
	for _, want := range []string{"", "all of it", "more than it may be"} {
		if err := WriteFileAtomic(name, []byte(want)); err != nil {
			t.Fatal(err)
		}
		text, at, err := ReadFileLimited(name, 10)
		if err != nil || text == nil || string(text) != want[:min(len(want), 10)] || at.IsZero() {
			t.Errorf("%q is read as %q of %v, %v", want, text, at, err)
		}
	}
	if _, _, err := ReadFileLimited(dir, 10); err == nil {
		t.Error("a folder is read")
	}
}
