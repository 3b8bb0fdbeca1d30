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

func TestKeepReturnsWhatOutlivesARestart(t *testing.T) {
	k := Keep{Dir: filepath.Join(t.TempDir(), "made", "here")}
	if d, err := k.Load(); d != nil || err != nil {
		t.Fatalf("an empty folder holds %+v (%v)", d, err)
	}
	d := &Directive{
		Index: 9, SpecVersion: 3, Spec: []byte("zone: x"), PlanEpoch: 5, TicketKeys: [][]byte{[]byte("secret-of-tickets")},
		Drains: []Drain{{Path: "fra/fra-a", Until: time.Unix(1_700_000_000, 0).UTC(), Reason: "repair"}}, Peers: []Peer{{Region: "iad"}},
	}
	for range 2 { // the second replaces the first
		if err := k.Save(d); err != nil {
			t.Fatal(err)
		}
	}
	got, err := k.Load()
	if err != nil {
		t.Fatal(err)
	}
	if age := time.Since(got.Kept); age < 0 || age > time.Minute {
		t.Errorf("kept %v ago", age)
	}
	got.Kept = time.Time{}
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

func TestKeepReportsAFileThatIsNone(t *testing.T) {
	k := Keep{Dir: t.TempDir()}
	for _, text := range []string{"", "{", `{"index":-1}`, `{"drains":3}`} {
		if err := os.WriteFile(filepath.Join(k.Dir, keepName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if d, err := k.Load(); err == nil || !strings.Contains(err.Error(), "kept directive") {
			t.Errorf("%q is taken for %+v (%v)", text, d, err)
		}
	}
}

func TestKeepWithoutAFolderKeepsNothing(t *testing.T) {
	if err := (Keep{}).Save(&Directive{Index: 1}); err != nil {
		t.Fatal(err)
	}
	if d, err := (Keep{}).Load(); d != nil || err != nil {
		t.Fatalf("got %+v (%v)", d, err)
	}
}

// TestKeepRefusesWhatItCannotTrust: of a torn or changed file nothing is believed, and a later release's is left alone,
// with an error that says which; a file of the form before is read.
func TestKeepRefusesWhatItCannotTrust(t *testing.T) {
	k := Keep{Dir: t.TempDir()}
	if err := k.Save(&Directive{Index: 9, SpecVersion: 3, Spec: []byte("zone: x"), Drains: []Drain{{Path: "fra"}}}); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(k.Dir, keepName)
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		text []byte
		says string
	}{
		"torn":     {good[:len(good)/2], "torn"},
		"corrupt":  {bytes.Replace(good, []byte("zone: x"), []byte("zone: y"), 1), "corrupt"},
		"of later": {bytes.Replace(good, []byte(`"format":2`), []byte(`"format":3`), 1), "written by a later one"},
		"unlawful": {[]byte(`{"index":9,"spec":"zone: x","drains":[{"Path":""}]}`), "a drain has no path"},
	} {
		if err := os.WriteFile(name, c.text, 0o600); err != nil {
			t.Fatal(err)
		}
		if d, err := k.Load(); err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: taken for %+v (%v)", what, d, err)
		}
	}
	if err := os.WriteFile(name, []byte(`{"index":9,"spec_version":3,"spec":"zone: x","drains":null}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if d, err := k.Load(); err != nil || d.SpecVersion != 3 || string(d.Spec) != "zone: x" || d.Kept.IsZero() {
		t.Errorf("the form before: %+v (%v)", d, err)
	}
}

func FuzzReadKept(f *testing.F) {
	text, err := os.ReadFile("testdata/kept.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"index":9,"spec_version":3,"spec":"zone: x","drains":[{"Path":"fra"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, err := readKept(b); err == nil && d.check() != nil {
			t.Fatalf("unlawful: %+v", d)
		}
	})
}

func TestReadWholeTellsNoFileFromAnEmptyOne(t *testing.T) {
	dir := t.TempDir()
	if text, at, err := ReadWhole(filepath.Join(dir, "none"), 10); text != nil || !at.IsZero() || err != nil {
		t.Errorf("no file: %q of %v, %v", text, at, err)
	}
	name := filepath.Join(dir, "folder", "file")
	for _, want := range []string{"", "all of it", "more than it may be"} {
		if err := WriteWhole(name, []byte(want)); err != nil {
			t.Fatal(err)
		}
		text, at, err := ReadWhole(name, 10)
		if err != nil || text == nil || string(text) != want[:min(len(want), 10)] || at.IsZero() {
			t.Errorf("%q is read as %q of %v, %v", want, text, at, err)
		}
	}
	if _, _, err := ReadWhole(dir, 10); err == nil {
		t.Error("a folder is read")
	}
}
