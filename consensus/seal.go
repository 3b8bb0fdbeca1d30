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

// An entry on disk carries, as its extensions, the commit index that was known as it was written, 8 bytes, and a CRC-32C
// of itself, 4 bytes: bbolt has no checksums for its data, and a flipped bit in an entry would be agreed on by nobody.
const sealSize = 8 + 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal is the extensions of an entry.
func seal(l *raft.Log, commit uint64) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, sealSize), commit)
	return binary.BigEndian.AppendUint32(b, sealSum(l, b))
}

// unseal checks an entry as it was read; those of releases that wrote no sum pass.
func unseal(l *raft.Log) error {
	if len(l.Extensions) != sealSize {
		return nil
	}
	if sealSum(l, l.Extensions[:8]) != binary.BigEndian.Uint32(l.Extensions[8:]) {
		return fmt.Errorf("entry %d does not fit its checksum", l.Index)
	}
	return nil
}

func sealSum(l *raft.Log, commit []byte) uint32 {
	head := binary.BigEndian.AppendUint64(make([]byte, 0, 25), l.Index)
	head = append(binary.BigEndian.AppendUint64(head, l.Term), byte(l.Type))
	sum := crc32.Update(0, castagnoli, append(head, commit...))
	return crc32.Update(sum, castagnoli, l.Data)
}

// openBolt opens the file once it has been read through, or says why it cannot be: opened for writing, bbolt scans for
// free pages in a goroutine of its own and panics there at a page that is not what it should be.
func openBolt(o raftboltdb.Options) (*raftboltdb.BoltStore, error) {
	if _, err := os.Stat(o.Path); err == nil {
		if err := readThrough(o.Path); err != nil {
			return nil, err
		}
	}
	return raftboltdb.New(o)
}

// readThrough looks at every page that a bucket reaches. The file is mapped into memory: where it was cut short, reading
// faults.
func readThrough(path string) (err error) {
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
