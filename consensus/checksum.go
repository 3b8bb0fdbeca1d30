package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"runtime/debug"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// An entry on disk has two extensions: the commit index known when it was written, 8 bytes, and a CRC-32C of the
// entry, 4 bytes. bbolt has no checksums for its data, and a flipped bit would put an entry in force that was never
// agreed on.
const extensionSize = 8 + 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encodeExtension returns the extensions of an entry.
func encodeExtension(l *raft.Log, commit uint64) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, extensionSize), commit)
	return binary.BigEndian.AppendUint32(b, computeChecksum(l, b))
}

// verifyChecksum checks an entry that was read; entries of releases that wrote no checksum pass.
func verifyChecksum(l *raft.Log) error {
	if len(l.Extensions) != extensionSize {
		return nil
	}
	if computeChecksum(l, l.Extensions[:8]) != binary.BigEndian.Uint32(l.Extensions[8:]) {
		return fmt.Errorf("entry %d does not match its checksum", l.Index)
	}
	return nil
}

func computeChecksum(l *raft.Log, commit []byte) uint32 {
	head := binary.BigEndian.AppendUint64(make([]byte, 0, 25), l.Index)
	head = append(binary.BigEndian.AppendUint64(head, l.Term), byte(l.Type))
	sum := crc32.Update(0, castagnoli, append(head, commit...))
	return crc32.Update(sum, castagnoli, l.Data)
}

// openBolt opens the file after it has been read through, or returns the reason why it cannot be read. Opened for
// writing, bbolt scans for free pages in its own goroutine and panics there at an invalid page.
func openBolt(o raftboltdb.Options) (*raftboltdb.BoltStore, error) {
	if _, err := os.Stat(o.Path); err == nil {
		if err := readAllPages(o.Path); err != nil {
			return nil, err
		}
	}
	return raftboltdb.New(o)
}

// readAllPages reads every page that a bucket reaches. The file is mapped into memory: reading past a truncation
// faults.
func readAllPages(path string) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = ErrDamaged{What: "the log " + path, Err: errors.New(fmt.Sprint(p))}
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return err
	}
	sum := byte(0)
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(_, v []byte) error {
				for i := 0; i < len(v); i += 512 {
					sum += v[i]
				}
				return nil
			})
		})
	})
	return errors.Join(err, db.Close())
}
