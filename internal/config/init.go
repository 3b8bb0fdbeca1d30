package config

import (
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

//go:embed examples/*.yaml
var examples embed.FS

// kinds are what Init and Describe know: every role, and the spec.
func kinds() []string { return append(Roles(), "spec") }

// Init writes a commented example of a role's config file, or of the spec.
func Init(w io.Writer, role string) error {
	if !slices.Contains(kinds(), role) {
		return unknownKind(role)
	}
	text, err := examples.ReadFile("examples/" + role + ".yaml")
	if err != nil {
		return fmt.Errorf("reading the example: %w", err)
	}
	_, err = w.Write(text)
	return err
}

func unknownKind(role string) error {
	return fmt.Errorf("unknown role %q: write one of %s (%s)", role, strings.Join(kinds(), ", "), strict.Suggest(role, kinds(), "roles"))
}
