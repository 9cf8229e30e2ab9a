//! Decides which priority band each job's traffic has (TensorLights, ICDCS'19 slides).
