package protocol

import (
	"strconv"
	"sync"
)

const slots = 1 << 14

// slotOf returns the hash slot of a key without braces.
func slotOf(key string) int { return int(crc16(0, key)) % slots }

// crc16 continues the checksum crc of a Redis cluster (CRC-16/XMODEM) with s.
func crc16(crc uint16, s string) uint16 {
	for i := range len(s) {
		crc ^= uint16(s[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}

// tags are the slotTags of each prefix.
var tags struct {
	sync.Mutex
	of map[string]*[slots]string
}

// slotTag returns a hash tag in a slot, the same in each process. It begins with the prefix, for
// which users have permissions.
func slotTag(prefix string, slot int) string {
	tags.Lock()
	defer tags.Unlock()
	all := tags.of[prefix]
	if all == nil {
		all = new([slots]string)
		begin := prefix + "::"
		crc := crc16(0, begin)
		for n, missing := 0, slots; missing > 0; n++ {
			end := strconv.FormatInt(int64(n), 36)
			if s := int(crc16(crc, end)) % slots; all[s] == "" {
				all[s] = begin + end
				missing--
			}
		}
		if tags.of == nil {
			tags.of = map[string]*[slots]string{}
		}
		tags.of[prefix] = all
	}
	return all[slot]
}
