package main

import "github.com/spf13/cobra"

// markUsageMistakes makes mistakes in the command line of cmd and of the commands below it exit with exitUsage.
func markUsageMistakes(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return newUsageMistake(err) })
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error { return asUsageMistake(check(cmd, args)) }
	}
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if err := cmd.ValidateRequiredFlags(); err != nil {
			return asUsageMistake(err)
		}
		if check == nil {
			return nil
		}
		return asUsageMistake(check(cmd, args))
	}
	for _, child := range cmd.Commands() {
		markUsageMistakes(child)
	}
}

func asUsageMistake(err error) error {
	if err == nil {
		return nil
	}
	return newUsageMistake(err)
}
