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
