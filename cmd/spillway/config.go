package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/config/strict"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/pick"
)

func configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Write, check and describe config files", GroupID: "prepare"}
	cmd.AddCommand(configInitCommand(), configCheckCommand(), configDescribeCommand(), configKeyCommand())
	return cmd
}

func configInitCommand() *cobra.Command {
	var dir string
	layout := fleet.DefaultLayout()
	cmd := &cobra.Command{
		Use:   "init [ROLE] | --planet DIR",
		Short: "Write a commented config file for one role, or every file of a planet",
		Long: `Write a commented config file for one role (global, regional, local, worker) or the spec to standard output, or, with
--planet, the files, certificates and keys of a whole planet on this machine into a folder.`,
		Example: "  spillway config init regional > gateway.yaml\n  spillway config init --planet ./planet --regions 2",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			switch {
			case dir == "" && len(args) == 1:
				return config.Init(out, args[0])
			case dir == "" || len(args) == 1:
				return errors.New("name one role (global, regional, local, worker, spec), or a folder with --planet")
			}
			p, err := fleet.Write(dir, layout)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "wrote a planet of %d nodes to %s; start all of it with\n  spillway demo --processes --dir %s\nor any node by hand, for example\n",
				len(p.Nodes), p.Dir, dir)
			for _, role := range []string{"worker", "local", "regional", "global"} {
				fmt.Fprintf(out, "  spillway %s -c %s\n", role, p.Config(p.Of(role)[0]))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "planet", "", "write a whole planet into this folder")
	layoutFlags(cmd, &layout)
	return cmd
}

func configCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE...",
		Short: "Check config files and specs; every mistake is shown with its line and what to write instead",
		Long: `Check config files and specs; every mistake is shown with its line and what to write instead. The files of certificates,
keys and credentials that a config names must be there. Warnings do not fail the check. The file - is standard input.`,
		Example: "  spillway config check gateway.yaml spec.yaml\n  spillway config check - < gateway.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			bad := 0
			for _, name := range args {
				kind, err := checkFile(cmd.InOrStdin(), cmd.ErrOrStderr(), name)
				if err != nil {
					bad++
					fmt.Fprintln(cmd.ErrOrStderr(), err)
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: a valid %s\n", name, kind)
			}
			if bad > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "spillway: %d of %d files need attention\n", bad, len(args))
				return errQuiet
			}
			return nil
		},
	}
}

// checkFile reads a role's config file, or a spec where no role is named, and says which it was. Warnings go to out.
func checkFile(in io.Reader, out io.Writer, name string) (string, error) {
	text, err := readOrStdin(in, name)
	if err != nil {
		return "", fmt.Errorf("reading the file: %w", err)
	}
	if config.RoleOf(text) != "" {
		c, err := config.Check(name, text, pick.KnownGPU)
		if c.Warnings != nil {
			fmt.Fprintf(out, "warning: %v\n", c.Warnings)
		}
		return c.Kind, err
	}
	if role := config.LooksLike(text); role != "" {
		return "", config.NoRole(name, text, role)
	}
	s, alone, err := readSpec(name, text)
	if err == nil && alone {
		return withoutGlobal(s), nil
	}
	return "spec", err
}

// readSpec decodes a spec file. One without zone and services is for a gateway or zone without a global tier.
func readSpec(name string, text []byte) (s *spec.Spec, alone bool, err error) {
	if doc, err := strict.Parse(name, text); err == nil && !doc.Has("zone") && !doc.Has("services") {
		s, err := spec.DecodeAlone(name, text)
		return s, true, err
	}
	s, err = spec.Decode(name, text)
	return s, false, err
}

// withoutGlobal says what a spec without zone and services is for, and what in it has no effect.
func withoutGlobal(s *spec.Spec) string {
	kind := "spec for a gateway or zone without a global tier (with one, it also needs zone, services and regions)"
	if names := s.Unreachable(); len(names) > 0 {
		kind += "\n  note: no request can belong to tenant " + strings.Join(names, ", ") + ": add a key with `spillway config key`"
	}
	return kind
}

// readOrStdin reads a file, or standard input for "-".
func readOrStdin(in io.Reader, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(io.LimitReader(in, maxCheck))
	}
	return os.ReadFile(name)
}

// maxCheck bounds what is read of standard input, in bytes; the reader of configs takes less.
const maxCheck = 64 << 20

func configDescribeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "describe ROLE",
		Short:   "Print every key of a role's config file with its type, default and meaning",
		Example: "  spillway config describe global\n  spillway config describe spec",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return config.Describe(cmd.OutOrStdout(), args[0])
		},
	}
}

func configKeyCommand() *cobra.Command {
	var stdin bool
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Make an API key and the hash of it that a spec holds",
		Long: `Make an API key and the hash of it that a spec holds. The key is shown once and kept nowhere: give it to the
tenant, and put the hash under the tenant's keys.`,
		Example: "  spillway config key\n  spillway config key --stdin < existing.key",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if stdin {
				line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
				if key := strings.TrimSpace(line); key != "" {
					fmt.Fprintln(cmd.OutOrStdout(), spec.HashKey(key))
					return nil
				}
				return fmt.Errorf("standard input holds no key: %w", err)
			}
			key, err := newKey()
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "key:  %s\nhash: %s\n", key, spec.HashKey(key))
			return nil
		},
	}
	cmd.Flags().BoolVar(&stdin, "stdin", false, "hash the key on standard input instead of making one")
	return cmd
}
