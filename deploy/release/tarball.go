package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// packedFile is a file or folder in an archive or in an image's layer.
type packedFile struct {
	path   string // in the archive, without a leading slash; a folder ends with one
	source string // the file with the content; empty: data
	data   []byte
	mode   int64
}

// writeTar writes files in the order of their paths, owned by 0:0, all of one time.
func writeTar(w io.Writer, files []packedFile, date time.Time) error {
	files = slices.SortedFunc(slices.Values(files), func(a, b packedFile) int { return cmp.Compare(a.path, b.path) })
	t := tar.NewWriter(w)
	for _, f := range files {
		h := &tar.Header{Name: f.path, Mode: f.mode, ModTime: date, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		data := f.data
		if strings.HasSuffix(f.path, "/") {
			h.Typeflag = tar.TypeDir
		} else if f.source != "" {
			var err error
			if data, err = os.ReadFile(f.source); err != nil {
				return err
			}
		}
		h.Size = int64(len(data))
		if err := t.WriteHeader(h); err != nil {
			return fmt.Errorf("packing %s: %w", f.path, err)
		}
		if _, err := t.Write(data); err != nil {
			return fmt.Errorf("packing %s: %w", f.path, err)
		}
	}
	return t.Close()
}

// writeTarGz writes a compressed archive.
func writeTarGz(path string, files []packedFile, date time.Time) error {
	var plain bytes.Buffer
	if err := writeTar(&plain, files, date); err != nil {
		return err
	}
	packed, err := compress(plain.Bytes())
	if err != nil {
		return err
	}
	return os.WriteFile(path, packed, 0o644)
}

// writeChecksums writes SHA256SUMS of all files of a folder, in the format of sha256sum.
func writeChecksums(dir string) error {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), e.Name())
	}
	fmt.Print(sums.String())
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// compressFile writes the content of a file, compressed.
func compressFile(path, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	packed, err := compress(data)
	if err != nil {
		return err
	}
	return os.WriteFile(path, packed, 0o644)
}

// compress returns data in gzip's format. The header has neither a name nor a time.
func compress(data []byte) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(data); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
