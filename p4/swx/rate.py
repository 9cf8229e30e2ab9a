"""Slots per second of the pipeline: rate.py ELEMENTS SLOTS. Two members, frames from captures."""

import sys
import tempfile
import time

import pipeline as P
import bmv2
from rig import Rig
from pathlib import Path
E=int(sys.argv[1]); N=int(sys.argv[2])
r=Rig(elements=E).base(); r.scope(); r.windowed(window=512,chunks=N)
d=Path(tempfile.mkdtemp(prefix='weft-swx-rate-'))
dev={}
for rank in (0,1):
    fr=[(i//1000,r.contribution(rank,i,5)) for i in range(N)]
    (d/f'p{rank}.pcap').write_bytes(bmv2.FILE_HEADER+bmv2.records(fr))
    dev[rank]=f'net_pcap{rank},rx_pcap={d}/p{rank}.pcap,tx_pcap={d}/o{rank}.pcap'
sc,v=P.configure(d,P.HERE.parent / f'build/weft-swx-{E}.spec',E,r.entries,dev)
port=P.free_port(); p=P.start(d,sc,port,v)
o=d/'o0.pcap'; t0=None; s0=tl=0; want=24+N*(16+74+4*E); last=0
while p.poll() is None:
    s=o.stat().st_size if o.exists() else 0
    now=time.monotonic()
    if s>0 and t0 is None: t0=now; s0=s
    if s!=last: tl=now; last=s
    if s>=want or (t0 and now-tl>3): break
    time.sleep(0.002)
print(E,N,'answers',(last-24)/(16+74+4*E),'slots/s',(last-s0)/(16+74+4*E)/max(tl-t0,1e-9))
p.kill(); p.wait()
