package fault

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// leaseFile stores a table, so that a process that replaces a killed one knows what to clear. It is replaced as a whole
// by rename. It is not synced: it has to outlive the process, not the machine, whose restart ends every fault by itself.
type leaseFile string

func (f leaseFile) readTable() (*leaseTable, error) {
	t := &leaseTable{leases: map[string]*lease{}}
	b, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading leases: %w", err)
	}
	list, err := decodeLeases(b)
	if err != nil {
		return nil, fmt.Errorf("reading leases from %s: %w: remove the file after clearing the faults by hand", f, err)
	}
	for _, l := range list {
		t.leases[l.Spec.ID] = l
	}
	return t, nil
}

// decodeLeases reads a list of leases and refuses what this version could not have written.
func decodeLeases(b []byte) ([]*lease, error) {
	var list []*lease
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, err
	}
	if len(list) > maxLeases+maxEnded {
		return nil, fmt.Errorf("%d leases, at most %d", len(list), maxLeases+maxEnded)
	}
	for i, l := range list {
		if l == nil {
			return nil, fmt.Errorf("lease %d is null", i)
		}
		if err := CheckSpec(l.Spec); err != nil {
			return nil, fmt.Errorf("lease %d: %w", i, err)
		}
	}
	return list, nil
}

func (f leaseFile) writeTable(t *leaseTable) error {
	list := make([]*lease, 0, len(t.leases))
	for _, l := range t.leases {
		list = append(list, l)
	}
	sortLeases(list)
	list = slices.Clip(list)
	b, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(string(f), append(b, '\n'), 0o600)
}

// replaceFile writes a file under another name and renames it.
func replaceFile(path string, content []byte, mode fs.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(content)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}
