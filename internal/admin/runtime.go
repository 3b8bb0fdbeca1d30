package admin

import (
	"fmt"
	"os"
	"path/filepath"
)

// RuntimeDir returns the default folder for the sockets of this user's nodes: below $XDG_RUNTIME_DIR, or below the system's
// folder for temporary files if that is not set. The sockets are named ROLE-NAME.sock.
func RuntimeDir() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "spillway")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("spillway-%d", os.Getuid()))
}
