package platform

import (
	"fmt"

	"golang.org/x/sys/unix"
)

func printDumpable() {
	v, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		panic(err)
	}
	fmt.Printf("dumpable %d\n", v)
}
