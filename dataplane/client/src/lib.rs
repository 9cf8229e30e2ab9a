//! What a training program uses: Session, allreduce.
