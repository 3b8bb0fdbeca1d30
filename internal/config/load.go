package config

import (
	"fmt"
	"io"
	"os"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// LoadFile reads a config file. It returns a *Global, *Regional, *Local or *Worker, by the file's role; the error of a
// file that could be read is an *Error.
func LoadFile(path string) (any, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Decode(path, text)
}

// readFile reads no more of a file than a config may have, and one byte to tell.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the config: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, strict.MaxText+1))
	if err != nil {
		return nil, fmt.Errorf("reading the config: %w", err)
	}
	return text, nil
}
