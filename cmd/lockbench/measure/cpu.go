package measure

import "os"

// cpuModel returns the name of the processor, "" if unknown.
func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	return firstLine(string(b), "model name")
}
