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
var exampleFiles embed.FS

// configKinds are the kinds that WriteExample and DescribeConfig support: every role, and the spec.
func configKinds() []string { return append(RoleNames(), "spec") }

// WriteExample writes a commented example of a role's config file, or of the spec.
func WriteExample(w io.Writer, role string) error {
	if !slices.Contains(configKinds(), role) {
		return unknownKindError(role)
	}
	text, err := exampleFiles.ReadFile("examples/" + role + ".yaml")
	if err != nil {
		return fmt.Errorf("reading the example: %w", err)
	}
	_, err = w.Write(text)
	return err
}

func unknownKindError(role string) error {
	return fmt.Errorf("unknown role %q: write one of %s (%s)", role, strings.Join(configKinds(), ", "), strict.SuggestName(role, configKinds(), "roles"))
}
