package load

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
)

// Trace is a trace file being played.
type Trace struct {
	ArrivalSource
	name string
	file *traceFile
}

// OpenTrace opens a trace in the Azure, Mooncake or Recorder format, gzip or plain, detected by its first bytes.
func OpenTrace(path string, seed uint64) (*Trace, error) {
	file, err := openFile(path)
	if err != nil {
		return nil, err
	}
	source, err := readSource(file.Reader, seed)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("opening the trace %s: %w", path, err)
	}
	return &Trace{ArrivalSource: source, name: path, file: file}, nil
}

// NextArrival returns the next arrival. Errors name the file and the line.
func (t *Trace) NextArrival() (Arrival, error) {
	a, err := t.ArrivalSource.NextArrival()
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%s: %w", t.name, err)
	}
	return a, err
}

// Close closes the file.
func (t *Trace) Close() error { return t.file.Close() }

// ReadTrace reads a trace as OpenTrace does.
func ReadTrace(r io.Reader, seed uint64) (ArrivalSource, error) {
	buffered, err := newUnzipReader(r)
	if err != nil {
		return nil, err
	}
	return readSource(buffered, seed)
}

// readSource reads a trace that is not compressed.
func readSource(buffered *bufio.Reader, seed uint64) (ArrivalSource, error) {
	first, err := buffered.Peek(1)
	switch {
	case err != nil:
		if errors.Is(err, io.EOF) {
			return nil, errors.New("it is empty: it has no first byte")
		}
		return nil, fmt.Errorf("reading its first byte: %w", err)
	case first[0] == '{':
		if start, _ := buffered.Peek(len(recordPrefix)); string(start) == recordPrefix {
			return newRecordReader(buffered), nil
		}
		return ReadMooncake(buffered, seed), nil
	case first[0] == 'T' || first[0] >= '0' && first[0] <= '9':
		return ReadAzure(buffered, seed), nil
	}
	return nil, fmt.Errorf("unknown format: use an Azure trace (CSV with TIMESTAMP,ContextTokens,GeneratedTokens) or a Mooncake trace (JSON lines with timestamp, input_length, output_length, hash_ids)")
}

// newUnzipReader reads plain or gzip data.
func newUnzipReader(r io.Reader) (*bufio.Reader, error) {
	buffered := bufio.NewReader(r)
	if magic, _ := buffered.Peek(2); len(magic) < 2 || magic[0] != 0x1f || magic[1] != 0x8b {
		return buffered, nil
	}
	unzipped, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, fmt.Errorf("reading gzip: %w", err)
	}
	return bufio.NewReader(unzipped), nil
}

// traceFile is a file, unzipped.
type traceFile struct {
	*bufio.Reader
	file *os.File // nil for a cached file
}

func openFile(path string) (*traceFile, error) {
	if text, ok := traceFiles.readText(path); ok {
		return &traceFile{Reader: bufio.NewReader(bytes.NewReader(text))}, nil
	}
	return streamFile(path)
}

// streamFile opens a file that is read as it is played.
func streamFile(path string) (*traceFile, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the trace: %w", err)
	}
	r, err := newUnzipReader(file)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("opening the trace %s: %w", path, err)
	}
	return &traceFile{r, file}, nil
}

// Close closes the file.
func (o *traceFile) Close() error {
	if o.file == nil {
		return nil
	}
	return o.file.Close()
}
