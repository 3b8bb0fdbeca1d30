package consensus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/spillway-lb/spillway/internal/identity"
)

// soloNode creates single-node clusters.
type soloNode struct {
	t     *testing.T
	certs *identity.Certs
}

func newSoloNode(t *testing.T) soloNode {
	t.Helper()
	ca, err := identity.NewDevCA(t.TempDir(), "test.spillway")
	if err != nil {
		t.Fatal(err)
	}
	files, err := ca.IssueCert(identity.ID{TrustDomain: "test.spillway", Role: identity.RoleGlobal, Name: "g1"}, t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	certs, err := identity.LoadCerts(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	return soloNode{t, certs}
}

func (s soloNode) nodeConfig(dir string) Config {
	return Config{ID: "g1", Dir: dir, Listen: "127.0.0.1:0", Advertise: "127.0.0.1:1", Certs: s.certs, Heartbeat: 50 * time.Millisecond}
}

func (s soloNode) startNode(dir string) (*Node, error) {
	s.t.Helper()
	n, err := New(s.nodeConfig(dir))
	if err != nil {
		s.t.Fatal(err)
	}
	return n, n.Start(s.t.Context())
}

func (s soloNode) stopNode(n *Node) {
	s.t.Helper()
	if err := n.Stop(context.Background()); err != nil {
		s.t.Fatal(err)
	}
}

// writeState fills a directory: specs 1 to 4, a snapshot, 5 to 8, another, and 9 to 12 in the log only.
func (s soloNode) writeState() (dir string) {
	s.t.Helper()
	dir = s.t.TempDir()
	n, err := s.startNode(dir)
	if err != nil {
		s.t.Fatal(err)
	}
	for v := range uint64(12) {
		if v == 4 || v == 8 {
			if err := n.raft.Snapshot().Error(); err != nil {
				s.t.Fatal(err)
			}
		}
		if _, err := n.PutSpec(s.t.Context(), v, fmt.Appendf(nil, "spec %d", v+1), "a"); err != nil {
			s.t.Fatal(err)
		}
	}
	s.stopNode(n)
	return dir
}

// newestSnapshotFile is the path of a file of the newest snapshot.
func newestSnapshotFile(t *testing.T, dir, file string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, snapshotDir, "*", file))
	if err != nil || len(found) < 2 {
		t.Fatalf("%d snapshots in %s, %v", len(found), dir, err)
	}
	slices.SortFunc(found, func(a, b string) int { return len(a) - len(b) + strings.Compare(a, b)*1000 })
	return found[len(found)-1]
}

func flipBit(t *testing.T, path string, at func(size int) int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[at(len(b))] ^= 0x10
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func halfOf(size int) int { return size / 2 }

func truncateFile(t *testing.T, path string) {
	t.Helper()
	i, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, i.Size()/2)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// updateLogBucket changes the log's bucket: its keys are indexes, its values entries.
func updateLogBucket(t *testing.T, dir string, f func(b *bbolt.Bucket) error) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(dir, logFile), 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bbolt.Tx) error { return f(tx.Bucket([]byte("logs"))) }); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// specFromLogEnd is the n-th spec from the end of the log.
func specFromLogEnd(b *bbolt.Bucket, n int) (key, value []byte) {
	c := b.Cursor()
	for key, value = c.Last(); key != nil; key, value = c.Prev() {
		if !bytes.Contains(value, []byte(`"based_on"`)) {
			continue
		}
		if n--; n < 0 {
			break
		}
	}
	return slices.Clone(key), slices.Clone(value)
}

// TestDamagedStorageIsDetectedAndSalvaged damages a node's state in every way that a disk does. The node does not
// start and names the command that repairs it; that command continues with the intact part.
func TestDamagedStorageIsDetectedAndSalvaged(t *testing.T) {
	t.Parallel()
	s := newSoloNode(t)
	whole := s.writeState()
	for name, c := range map[string]struct {
		damage func(dir string)
		left   uint64 // the least spec version that must remain
	}{
		"a bit of the newest snapshot": {func(d string) { flipBit(t, newestSnapshotFile(t, d, "state.bin"), halfOf) }, 12},
		"half of the newest snapshot":  {func(d string) { truncateFile(t, newestSnapshotFile(t, d, "state.bin")) }, 12},
		"the newest snapshot's description": {func(d string) {
			if err := os.WriteFile(newestSnapshotFile(t, d, "meta.json"), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, 12},
		"a bit of the last entry": {func(d string) {
			updateLogBucket(t, d, func(b *bbolt.Bucket) error {
				k, v := specFromLogEnd(b, 0)
				v[bytes.Index(v, []byte("based_on"))+12] ^= 1
				return b.Put(k, v)
			})
		}, 11},
		"a bit of an entry before it": {func(d string) {
			updateLogBucket(t, d, func(b *bbolt.Bucket) error {
				k, v := specFromLogEnd(b, 2)
				v[bytes.Index(v, []byte("based_on"))+12] ^= 1
				return b.Put(k, v)
			})
		}, 9},
		"an entry that is missing": {func(d string) {
			updateLogBucket(t, d, func(b *bbolt.Bucket) error {
				k, _ := specFromLogEnd(b, 2)
				return b.Delete(k)
			})
		}, 9},
		"the tail of the log": {func(d string) {
			if err := os.Truncate(filepath.Join(d, logFile), 3*4096); err != nil {
				t.Fatal(err)
			}
		}, 8},
		"the head of the log":   {func(d string) { overwriteBytes(t, filepath.Join(d, logFile), 0, 8192) }, 8},
		"the middle of the log": {func(d string) { overwriteBytes(t, filepath.Join(d, logFile), 8192, 1<<20) }, 8},
	} {
		t.Run(name, func(t *testing.T) {
			s := s
			s.t = t
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			c.damage(dir)
			_, err := s.startNode(dir)
			var damaged ErrDamaged
			if !errors.As(err, &damaged) || !strings.Contains(err.Error(), "spillway recover -c FILE --salvage") || !strings.Contains(err.Error(), dir) {
				t.Fatalf("starting: %v, want a refusal that names the repair command", err)
			}
			t.Log(damaged.What, "is damaged:", damaged.Err)
			if _, err := RecoverNode(s.nodeConfig(dir), false); !errors.As(err, &damaged) {
				t.Fatalf("recovering without leaving anything out: %v", err)
			}
			st, err := RecoverNode(s.nodeConfig(dir), true)
			if err != nil || st.SpecVersion < c.left || string(st.Spec) != fmt.Sprintf("spec %d", st.SpecVersion) {
				t.Fatalf("recovered to %+v, %v; want spec %d at least", st, err, c.left)
			}
			n, err := s.startNode(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer s.stopNode(n)
			if v, err := n.PutSpec(t.Context(), st.SpecVersion, []byte("after"), "a"); err != nil || v != st.SpecVersion+1 {
				t.Fatalf("writing after recovery: %d, %v", v, err)
			}
		})
	}
	n, err := s.startNode(whole)
	if err != nil || n.State().SpecVersion < 8 {
		t.Fatalf("what is whole does not start: %v", err)
	}
	s.stopNode(n)
}

func overwriteBytes(t *testing.T, path string, from, most int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := from; i < min(len(b), from+most); i++ {
		b[i] = 0xff
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
