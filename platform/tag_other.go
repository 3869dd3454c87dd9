//go:build unix && !linux

package platform

// Tags rest on a limit and a file that only Linux has.
func makeTag(uint64, int) uint64 { return 0 }

func sameDaemon(uint64, uint64) bool { return false }

func putTag(uint64) {}

func tagsWork() bool { return false }

func tagOf(int) uint64 { return 0 }

// sealDescriptors keeps descriptors that this process inherited by mistake from
// what it starts.
func sealDescriptors(from int) { sealEach(from) }
