package config

import (
	"fmt"
	"io"
	"os"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// LoadFile reads a config file. It returns a *Global, *Regional, *Local or *SimulatedWorker, by the role of the
// file; the error for a readable file is an *Error.
func LoadFile(path string) (any, error) {
	text, err := readConfigFile(path)
	if err != nil {
		return nil, err
	}
	return Decode(path, text)
}

// readConfigFile reads at most one byte more than the size limit of a config, so that a larger file is
// detected.
func readConfigFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the config: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, strict.MaxTextBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the config: %w", err)
	}
	return text, nil
}
