//go:build !unix

package fault

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
)

var errNotHere = fmt.Errorf("faults of processes need a Unix system, and this is %s", runtime.GOOS)

func tryLock(*os.File) error { return errNotHere }

func ownSession() *syscall.SysProcAttr { return nil }

func pauseProcess(int) error     { return errNotHere }
func continueProcess(int) error  { return errNotHere }
func killProcess(int) error      { return errNotHere }
func terminateProcess(int) error { return errNotHere }
