//! The perceptron's arithmetic: ReLU layers, softmax with cross-entropy, one image at a time.
//!
//! Parameters and gradients are one flat slice: for each layer the weights, one row per input,
//! then the biases. Rows are walked whole, and inputs that are zero (most pixels, half of a ReLU
//! layer) are skipped, which changes the value of no finite sum.
//!
//! Invariant: every sum has one fixed order. [`dot`] keeps [`LANES`] partial sums so that the
//! compiler may use SIMD without being allowed to reorder anything.

use super::SplitMix64;

/// A perceptron with its scratch memory.
#[derive(Clone, Debug)]
pub struct Mlp {
    parameters: Vec<f32>,
    layers: Vec<Layer>,
    /// `activations[l]` is the input of layer `l`; the last one holds the class scores.
    activations: Vec<Vec<f32>>,
    /// `deltas[l]` is the derivative of the loss by the output of layer `l`.
    deltas: Vec<Vec<f32>>,
}

#[derive(Clone, Copy, Debug)]
struct Layer {
    inputs: usize,
    outputs: usize,
    /// Where the layer's weights start in the flat slice.
    offset: usize,
}

impl Mlp {
    /// Builds a network with layers of `sizes`, inputs first, with He's uniform initialisation.
    #[must_use]
    pub fn new(sizes: &[usize], mut rng: SplitMix64) -> Self {
        let mut layers = Vec::new();
        let mut parameters = Vec::new();
        for pair in sizes.windows(2) {
            let (inputs, outputs) = (pair[0], pair[1]);
            layers.push(Layer { inputs, outputs, offset: parameters.len() });
            let bound = (6.0 / inputs as f32).sqrt();
            let weights = inputs * outputs;
            parameters.extend((0..weights).map(|_| (2.0 * rng.next_f32() - 1.0) * bound));
            parameters.extend(std::iter::repeat_n(0.0, outputs));
        }
        let activations = sizes.iter().map(|&size| vec![0.0; size]).collect();
        let deltas = sizes.iter().skip(1).map(|&size| vec![0.0; size]).collect();
        Self { parameters, layers, activations, deltas }
    }

    /// All parameters, flat.
    #[must_use]
    pub fn parameters(&self) -> &[f32] {
        &self.parameters
    }

    /// All parameters, flat.
    pub fn parameters_mut(&mut self) -> &mut [f32] {
        &mut self.parameters
    }

    /// Elements of each tensor: of every layer its weights, then its biases.
    #[must_use]
    pub fn tensor_lens(&self) -> Vec<usize> {
        let of = |layer: &Layer| [layer.inputs * layer.outputs, layer.outputs];
        self.layers.iter().flat_map(of).collect()
    }

    /// The class with the highest score; the lowest such class on a tie.
    pub fn classify(&mut self, pixels: &[f32]) -> usize {
        self.forward(pixels);
        self.highest()
    }

    /// The loss of one image, and whether it is labelled correctly.
    pub fn judge(&mut self, pixels: &[f32], label: usize) -> (f32, bool) {
        let correct = self.classify(pixels) == label;
        let last = self.layers.len();
        let loss = softmax_delta(&self.activations[last], label, 1.0, &mut self.deltas[last - 1]);
        (loss, correct)
    }

    fn highest(&self) -> usize {
        let scores = &self.activations[self.layers.len()];
        let mut best = 0;
        for (class, score) in scores.iter().enumerate() {
            if *score > scores[best] {
                best = class;
            }
        }
        best
    }

    /// Adds `weight` times the gradient of one image's loss to `gradient`; returns the loss.
    pub fn accumulate(
        &mut self,
        pixels: &[f32],
        label: usize,
        weight: f32,
        gradient: &mut [f32],
    ) -> f32 {
        assert_eq!(gradient.len(), self.parameters.len(), "gradient and model differ in length");
        self.forward(pixels);
        let last = self.layers.len() - 1;
        let scores = &self.activations[last + 1];
        let loss = softmax_delta(scores, label, weight, &mut self.deltas[last]);
        for index in (0..self.layers.len()).rev() {
            self.layer_gradient(index, gradient);
            if index > 0 {
                self.propagate(index);
            }
        }
        loss
    }

    fn forward(&mut self, pixels: &[f32]) {
        self.activations[0].copy_from_slice(pixels);
        let last = self.layers.len() - 1;
        for (index, layer) in self.layers.iter().enumerate() {
            let (head, tail) = self.activations.split_at_mut(index + 1);
            let (input, output) = (&head[index], &mut tail[0]);
            let (weights, biases) = layer.of(&self.parameters);
            output.copy_from_slice(biases);
            for (row, &value) in weights.chunks_exact(layer.outputs).zip(input) {
                if value != 0.0 {
                    add_scaled(output, value, row);
                }
            }
            if index < last {
                output.iter_mut().for_each(|value| *value = value.max(0.0));
            }
        }
    }

    /// Adds layer `index`'s part: the outer product of its input and its delta.
    fn layer_gradient(&self, index: usize, gradient: &mut [f32]) {
        let layer = self.layers[index];
        let delta = &self.deltas[index];
        let (weights, biases) = layer.of_mut(gradient);
        for (row, &value) in weights.chunks_exact_mut(layer.outputs).zip(&self.activations[index]) {
            if value != 0.0 {
                add_scaled(row, value, delta);
            }
        }
        add_scaled(biases, 1.0, delta);
    }

    /// Computes the delta of the layer before `index`, zero where its ReLU was off.
    fn propagate(&mut self, index: usize) {
        let layer = self.layers[index];
        let (weights, _) = layer.of(&self.parameters);
        let (head, tail) = self.deltas.split_at_mut(index);
        let rows = weights.chunks_exact(layer.outputs);
        for ((target, row), &value) in
            head[index - 1].iter_mut().zip(rows).zip(&self.activations[index])
        {
            *target = if value > 0.0 { dot(row, &tail[0]) } else { 0.0 };
        }
    }
}

impl Layer {
    fn of(self, flat: &[f32]) -> (&[f32], &[f32]) {
        let end = self.offset + (self.inputs + 1) * self.outputs;
        flat[self.offset..end].split_at(self.inputs * self.outputs)
    }

    fn of_mut(self, flat: &mut [f32]) -> (&mut [f32], &mut [f32]) {
        let end = self.offset + (self.inputs + 1) * self.outputs;
        flat[self.offset..end].split_at_mut(self.inputs * self.outputs)
    }
}

/// Writes `weight * (softmax(scores) - one_hot(label))`; returns the cross-entropy.
fn softmax_delta(scores: &[f32], label: usize, weight: f32, delta: &mut [f32]) -> f32 {
    let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut total = 0.0;
    for (target, score) in delta.iter_mut().zip(scores) {
        *target = exp_nonpositive(score - highest);
        total += *target;
    }
    let probability = delta[label] / total;
    for target in delta.iter_mut() {
        *target = *target / total * weight;
    }
    delta[label] -= weight;
    -probability.max(f32::MIN_POSITIVE).ln()
}

/// e to the power of `x` for `x <= 0`, from additions and products only: `f32::exp` may differ
/// between C libraries, and the model's hash must not. Relative error below 1e-6.
fn exp_nonpositive(x: f32) -> f32 {
    if x.is_nan() || x < -87.0 {
        return 0.0;
    }
    let power = (x * std::f32::consts::LOG2_E).floor();
    // ln 2 in two parts, of which the first times an integer is exact.
    let rest = x - power * 0.693_359_4 + power * 2.121_944_4e-4;
    let mut sum = 1.0;
    for divisor in [7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0] {
        sum = 1.0 + sum * rest / divisor;
    }
    let mut scale = 1.0_f32;
    let mut exponent = power;
    while exponent < 0.0 {
        scale *= 0.5;
        exponent += 1.0;
    }
    sum * scale
}

fn add_scaled(target: &mut [f32], factor: f32, source: &[f32]) {
    for (t, s) in target.iter_mut().zip(source) {
        *t += factor * s;
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    let (a_whole, a_rest) = a.as_chunks::<LANES>();
    let (b_whole, b_rest) = b.as_chunks::<LANES>();
    for (x, y) in a_whole.iter().zip(b_whole) {
        for lane in 0..LANES {
            lanes[lane] += x[lane] * y[lane];
        }
    }
    let mut sum = 0.0;
    for lane in lanes {
        sum += lane;
    }
    for (x, y) in a_rest.iter().zip(b_rest) {
        sum += x * y;
    }
    sum
}

const LANES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_is_close_to_the_library() {
        for step in 0..8700 {
            let x = -(step as f32) * 0.01;
            let (ours, theirs) = (f64::from(exp_nonpositive(x)), f64::from(x).exp());
            assert!((ours / theirs - 1.0).abs() < 1e-6, "exp({x}) = {ours}, expected {theirs}");
        }
        assert_eq!((exp_nonpositive(0.0), exp_nonpositive(f32::NEG_INFINITY)), (1.0, 0.0));
    }

    #[test]
    fn gradient_matches_finite_differences() {
        let mut model = Mlp::new(&[6, 21, 19, 4], SplitMix64::new(3));
        let pixels = [0.5, 0.0, 1.0, 0.25, 0.75, 0.0];
        let mut gradient = vec![0.0; model.parameters().len()];
        model.accumulate(&pixels, 2, 1.0, &mut gradient);
        let mut scratch = gradient.clone();
        let step = 1e-2;
        for (index, &derived) in gradient.iter().enumerate() {
            let original = model.parameters()[index];
            let mut loss_at = |value| {
                model.parameters_mut()[index] = value;
                f64::from(model.accumulate(&pixels, 2, 1.0, &mut scratch))
            };
            let (above, below) = (loss_at(original + step), loss_at(original - step));
            model.parameters_mut()[index] = original;
            let measured = (above - below) / f64::from(2.0 * step);
            let error = (measured - f64::from(derived)).abs();
            assert!(error < 2e-3, "parameter {index}: {measured} against {derived}");
        }
    }

    #[test]
    fn dot_adds_every_element_once() {
        for len in 0..70_u16 {
            let a: Vec<f32> = (0..len).map(f32::from).collect();
            let b: Vec<f32> = (0..len).map(|i| f32::from(i % 5)).collect();
            let expected: u32 = (0..len).map(|i| u32::from(i) * u32::from(i % 5)).sum();
            assert_eq!(dot(&a, &b), expected as f32);
        }
    }
}
